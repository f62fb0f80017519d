/* DIRECT: the ranks are threads of one process and read and write each other's
 * private buffers, chunk by chunk, each touch between active+1 and active-1 in
 * the word. Commit point: finished == n, set by the member that completes the last chunk.
 * A rank that has returned may free or refill its buffer at once. */

#ifndef K
#define K 2             /* chunks */
#endif

#define COMMITTED(w)      (cell[w].finished == N)
#define BLOCK_FIELDS      byte next; byte done;
#define block_reset(b, i) block[b].next = 0; block[b].done = 0

#include "cell.pml"

byte buffer[N];         /* op + 1 while lent to that operation, else the owner's own */

/* Leaves `fresh` == 0, or NONE when the operation is revoked. */
inline cell_claim()
{
    d_step {
        if
        :: cell[way].revoked && KEEPS(CLAIM_CHECKS_REVOKED) -> fresh = NONE
        :: else ->
           fresh = 0;
           if
           :: KEEPS(CLAIM_BEFORE_TOUCH) -> cell[way].touching++
           :: else
           fi
        fi
    }
}

inline cell_release()
{
    d_step {
        if
        :: KEEPS(CLAIM_BEFORE_TOUCH) -> cell[way].touching--
        :: else
        fi
    }
}

/* Everybody who fails waits, not the revoker alone. Claimers are running threads
 * of this process in the middle of one chunk, so this wait needs no deadline. */
inline cell_drain()
{
    if
    :: cell[way].touching == 0
    :: revoker && !KEEPS(REVOKER_DRAINS)
    :: !revoker && !KEEPS(OBSERVER_DRAINS)
    fi
}

inline direct_chunk()
{
    d_step {
        for (i : 0 .. N - 1) {
            assert(buffer[i] == op + 1)
        }
        i = 0
    }
}

/* The member that counts the last chunk commits, unless the operation was revoked. */
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

/* Claims anew for each chunk, so that a failing rank waits for one chunk at
 * most. `fresh` is the chunk. */
inline direct_work()
{
    do
    :: atomic { MINE.next >= K -> break }
    :: atomic { MINE.next < K -> skip };
       atomic {
           cell_claim();
           if
           :: fresh == NONE -> break
           :: else
           fi
       };
       d_step { fresh = MINE.next; MINE.next++ };
       if
       :: atomic { fresh < K && KEEPS(COUNT_AFTER_TOUCH) -> direct_chunk() };
          cell_release();
          direct_count()
       :: atomic { fresh < K && !KEEPS(COUNT_AFTER_TOUCH) -> skip };
          direct_count();
          direct_chunk();
          cell_release()
       :: atomic { fresh >= K -> cell_release() }
       fi;
       fresh = NONE
    od;
    fresh = NONE
}

inline wait_arrivals()
{
    do
    :: atomic { cell[way].arrived == N || !KEEPS(TOUCH_AFTER_ALL_ARRIVED) -> break }
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

proctype rank(byte me; byte caller)
{
    LOCALS;

    do
    :: round == LAST || ABSENT && me == N - 1 -> break
    :: atomic { round < LAST -> call_begin(); buffer[me] = op + 1 };
       cell_enter();
       if
       :: state == ENTERED -> cell_arrive()
       :: else
       fi;
       if
       :: state == ARRIVED -> wait_arrivals()
       :: else
       fi;
       if
       :: state == ARRIVED -> direct_work(); direct_wait()
       :: else
       fi;
       if
       :: state == GOOD -> cell_leave()
       :: atomic { state == FAILED && way != NONE -> cell_drain() };
          TOGETHER { call_fail() }
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
