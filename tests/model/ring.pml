/* Who rings in a lane (oriel_lane_look in src/core/lane.c, lane in src/ops/request.c,
 * wait.c): an arrival is a plain store, so nobody knows that it was the last; who
 * finds the call full rings, after the fence. One call, no faults, and a sleep that
 * ends by the bell alone; bell.pml has the bell in detail. Store buffers are those
 * of lane.pml. */

#ifndef N
#define N 3             /* members, each a process; 2 or 3 */
#endif
#ifndef WITHOUT
#define WITHOUT 0       /* the one rule that a mutant drops */
#endif
#define KEEPS(rule) (WITHOUT != rule)

#define WHO_FINDS_FULL_RINGS   1
#define FENCE_BEFORE_SLEEPERS  2
#define FENCE_BEFORE_LAST_LOOK 3

bit buffered[N];        /* the arrival is under way */
bit arrived[N];         /* ... and visible to all */
bit sleepers[N];
bit bell[N];
bit g_gone[N];

#define SEEN(j) (arrived[j] || (j) == me)
#define FULL    (SEEN(0) && SEEN(1) && SEEN(N - 1))

inline flush(m)
{
    d_step {
        if
        :: buffered[m] -> buffered[m] = 0; arrived[m] = 1
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
    :: j == N -> break
    od
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
    :: FULL
    :: !FULL -> bell[me]
    fi;
    sleepers[me] = 0
}

proctype member(byte me)
{
    byte j;
    bit first = 1;      /* mutant: only who finds it full at its arrival rings */

    buffered[me] = 1;
    do
    :: FULL -> break
    :: atomic { !FULL -> first = 0 };
       pause()
    od;
    if
    :: first || KEEPS(WHO_FINDS_FULL_RINGS) -> ring()
    :: else
    fi;
    g_gone[me] = 1
}

proctype store_buffers()
{
end:
    do
    :: atomic { buffered[0] -> flush(0) }
    :: atomic { buffered[1] -> flush(1) }
    :: atomic { buffered[N - 1] -> flush(N - 1) }
    od
}

init
{
    byte r;

    atomic {
        for (r : 0 .. N - 1) {
            run member(r)
        }
        run store_buffers()
    };
    for (r : 0 .. N - 1) {
        g_gone[r]
    }
}
