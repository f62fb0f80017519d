/* Who rings in a lane (oriel_lane_look in src/core/protocol/lane.c, lane in src/ops/host/request.c,
 * wait.c): an arrival is a plain store, so nobody knows that it was the last; a
 * member that finds the call full rings, after the fence. Where each needs one other alone, nobody
 * looks for the last: a member that arrives rings, and so does one that has completed,
 * since the others may wait for the room of it by then. One call, no faults, and a sleep
 * that ends by the bell alone; bell.pml has the bell in detail. Store buffers are those of lane.pml. */

#ifndef N
#define N 3             /* members, each a process; 2 or 3 */
#endif
#ifndef ROOTED
#define ROOTED 0        /* 1: each needs the one before it, the first the last; 3 members */
#endif
#include "rules.pml"

#define WHO_FINDS_FULL_RINGS   1
#define FENCE_BEFORE_SLEEPERS  2
#define FENCE_BEFORE_LAST_LOOK 3
#define WHO_ARRIVES_RINGS      4
#define WHO_COMPLETES_RINGS    5

#define ARRIVED  1
#define COMPLETE 2

byte buffered[N];       /* what is under way */
byte stage[N];          /* ... and visible to all */
bit sleepers[N];
bit bell[N];
bit g_gone[N];
bit g_over;             /* the first member has what it needs of a rooted call */

#define SEEN(j, what) (stage[j] >= what || (j) == me)
#define ALL(what)     (SEEN(0, what) && SEEN(1, what) && SEEN(N - 1, what))
#define SOURCE_THERE  SEEN((me + N - 1) % N, ARRIVED)
/* Of a rooted call: its source, then room for the next one in its place. */
#define READY                                                                  \
    (!ROOTED && ALL(ARRIVED) || ROOTED && !over && SOURCE_THERE ||             \
     ROOTED && over && ALL(COMPLETE))

inline flush(m)
{
    d_step {
        if
        :: buffered[m] != 0 -> stage[m] = buffered[m]; buffered[m] = 0
        :: else
        fi
    }
}

inline ring()
{
    if
    :: KEEPS(FENCE_BEFORE_SLEEPERS) -> flush(me)
    :: else
    fi;
    do
    :: d_step { j < N -> bell[j] = bell[j] || sleepers[j]; j++ }
    :: atomic { j == N -> j = 0; break }
    od
}

/* Stores stay in order. */
inline store(what)
{
    d_step { flush(me); buffered[me] = what }
}

/* Announces, looks once more, sleeps. */
inline pause()
{
    d_step { sleepers[me] = 1; bell[me] = 0 };
    if
    :: KEEPS(FENCE_BEFORE_LAST_LOOK) -> flush(me)
    :: else
    fi;
    if
    :: READY
    :: !READY -> bell[me]
    fi;
    sleepers[me] = 0
}

inline wait_ready()
{
    do
    :: READY -> break
    :: atomic { !READY -> first = 0 };
       pause()
    od
}

proctype member(byte me)
{
    byte j;
    bit over;           /* its own part of a rooted call */
    bit first = 1;      /* mutant: only a member that finds it full at its arrival rings */

    if /* the one that is not needed for that may come after it */
    :: skip
    :: ROOTED && me == 1 -> g_over
    fi;
    store(ARRIVED);
    if
    :: ROOTED && KEEPS(WHO_ARRIVES_RINGS) -> ring()
    :: else
    fi;
    wait_ready();
    if
    :: !ROOTED && (first || KEEPS(WHO_FINDS_FULL_RINGS)) -> ring()
    :: ROOTED ->
       store(COMPLETE);
       atomic { over = 1; g_over = g_over || me == 0 };
       if
       :: KEEPS(WHO_COMPLETES_RINGS) -> ring()
       :: else
       fi;
       wait_ready()
    :: else
    fi;
    g_gone[me] = 1
}

proctype store_buffers()
{
end:
    do
    :: atomic { buffered[0] != 0 -> flush(0) }
    :: atomic { buffered[1] != 0 -> flush(1) }
    :: atomic { buffered[N - 1] != 0 -> flush(N - 1) }
    od
}

init
{
    byte r;

    atomic {
        choose_rules();
        for (r : 0 .. N - 1) {
            run member(r)
        }
        run store_buffers()
    };
    for (r : 0 .. N - 1) {
        g_gone[r]
    }
}
