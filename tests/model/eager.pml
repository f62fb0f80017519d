/* EAGER: payloads lie in the block before the arrival is counted; once all have
 * arrived every rank reduces for itself. Commit point: arrived == n. The sender of a
 * message needs nothing of the other, and leaves at once. */

#define COMMITTED(w)      (cell[w].arrived == N)
#define BLOCK_FIELDS      byte payload[N];
#define block_reset(b, i) skip

#include "cell.pml"

/* Into the own area of the block, outside any lock. */
inline eager_store()
{
    d_step {
        assert(cell[way].used && MINE.taken && MINE.g_op == op + 1);
        MINE.payload[me] = op + 1
    }
}

inline eager_wait()
{
    do
    :: atomic { COMMITTED(way) -> state = GOOD; break }
    :: atomic { MESSAGE && me == 0 && !cell[way].revoked -> state = GOOD; break }
    GIVING_UP
    od
}

inline eager_reduce()
{
    d_step {
        for (i : 0 .. N - 1) {
            assert(MINE.payload[i] == op + 1 || MESSAGE && (i != 0 || me == 0))
        }
        i = 0
    }
}

proctype rank(byte me; byte caller)
{
    LOCALS;

    {
        do
        :: round == LAST || ABSENT && me == N - 1 -> break
        :: atomic { round < LAST -> call_begin() };
           cell_enter();
           if
           :: atomic { state == ENTERED && KEEPS(PAYLOAD_BEFORE_ARRIVE) -> eager_store() };
              cell_arrive()
           :: atomic { state == ENTERED && !KEEPS(PAYLOAD_BEFORE_ARRIVE) -> cell_arrive() };
              eager_store()
           :: else
           fi;
           if
           :: state == ARRIVED -> eager_wait()
           :: else
           fi;
           if
           :: atomic { state == GOOD && KEEPS(READ_BEFORE_LEAVE) -> eager_reduce() };
              cell_leave()
           :: state == GOOD && !KEEPS(READ_BEFORE_LEAVE) -> cell_leave(); eager_reduce()
           :: TOGETHER { state == FAILED -> call_fail() }
           fi;
           call_return()
        od
    } unless {
        d_step { dead[me] -> FORGET_CALL; round = 0 }
    };
    g_gone[me * CALLERS + caller] = 1
}

init
{
    world_run()
}
