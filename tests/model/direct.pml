/* DIRECT: the ranks are threads of one process and read and write each other's
 * private buffers, chunk by chunk, each touch between active+1 and active-1 in
 * the word. Commit point: finished == n, set by who completes the last chunk.
 * A rank that has returned may free or refill its buffer at once. */

#ifndef K
#define K 2             /* chunks */
#endif
#ifndef SMALL
#define SMALL 0         /* 1: the last arriver does everything */
#endif

#define COMMITTED(w)      (cell[w].finished == N)
#define BLOCK_FIELDS      byte next; byte done;
#define block_reset(b, i) block[b].next = 0; block[b].done = 0

#include "cell.pml"

byte buffer[N];         /* op + 1 while lent to that operation, else the owner's own */

inline buffers_touch()
{
    for (i : 0 .. N - 1) {
        assert(buffer[i] == op + 1)
    }
    i = 0
}

inline direct_claim()
{
    d_step {
        if
        :: cell[way].revoked && KEEPS(CLAIM_CHECKS_REVOKED) -> fresh = NONE
        :: else ->
           cell[way].touching = cell[way].touching + (KEEPS(CLAIM_BEFORE_TOUCH) -> 1 : 0);
           fresh = 0
        fi
    }
}

inline direct_release()
{
    d_step {
        cell[way].touching = cell[way].touching - (KEEPS(CLAIM_BEFORE_TOUCH) -> 1 : 0);
        fresh = NONE
    }
}

/* Who counts the last chunk commits, unless the operation was revoked. */
inline direct_count()
{
    d_step { MINE.done++; last = (MINE.done == K) };
    d_step {
        if
        :: last && !cell[way].revoked -> cell[way].finished = N
        :: else
        fi;
        last = 0
    }
}

/* Claims anew for each chunk, so that a revoker waits for one chunk at most. */
inline direct_work()
{
    do
    :: direct_claim();
       if
       :: atomic { fresh == NONE -> break }
       :: d_step { fresh != NONE -> fresh = MINE.next; MINE.next++ }
       fi;
       if
       :: fresh >= K -> direct_release(); break
       :: d_step { fresh < K && KEEPS(COUNT_AFTER_TOUCH) -> buffers_touch() };
          direct_count()
       :: atomic { fresh < K && !KEEPS(COUNT_AFTER_TOUCH) -> direct_count() };
          d_step { buffers_touch() }
       fi;
       direct_release()
    od
}

/* All arrived, or the operation is revoked. */
inline direct_wait_arrivals()
{
    do
    :: cell[way].arrived == N || !KEEPS(TOUCH_AFTER_ALL_ARRIVED) -> break
    GIVING_UP
    od
}

inline direct_wait()
{
    do
    :: atomic { COMMITTED(way) -> state = GOOD; break }
    GIVING_UP
    od
}

/* The revoker and everybody else who fails: claimers are running threads of this
 * process, so the wait is short. */
inline direct_wait_idle()
{
    if
    :: cell[way].touching == 0
    :: revoker && !KEEPS(REVOKER_WAITS_FOR_IDLE)
    :: !revoker && !KEEPS(OBSERVER_WAITS_FOR_IDLE)
    fi
}

proctype rank(byte me; byte caller)
{
    LOCALS;

    do
    :: round == ROUNDS || ABSENT && me == N - 1 -> break
    :: atomic { round < ROUNDS -> call_begin(); buffer[me] = op + 1 };
       cell_enter();
       if
       :: state == ENTERED -> cell_arrive()
       :: else
       fi;
       if
       :: state == ARRIVED && !SMALL -> direct_wait_arrivals()
       :: else
       fi;
       if
       :: state == ARRIVED && (!SMALL || last) -> last = 0; direct_work()
       :: else
       fi;
       if
       :: state == ARRIVED -> direct_wait()
       :: else
       fi;
       if
       :: state == GOOD -> cell_leave()
       :: state == FAILED && way != NONE -> direct_wait_idle(); TOGETHER { call_fail() }
       :: TOGETHER { state == FAILED && way == NONE -> call_fail() }
       fi;
       atomic { buffer[me] = 0; call_return() }
    od;
    g_gone[me * CALLERS + caller] = 1
}

init
{
    world_run()
}
