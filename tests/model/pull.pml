/* PULLED mode: nothing is staged. Once all have arrived each member reads the others'
 * private buffers, through the system, which fails where there is nothing to read. Nobody
 * writes anybody else's, so nobody claims or drains: a member that reads a buffer that its
 * owner has taken back finds something wrong, and must not succeed. Commit point:
 * finished == n, all have read all.
 *
 * Wrong data is known to the model alone (g_wrong): the code cannot tell. */

#define COMMITTED(w)      (cell[w].finished == N)
#define BLOCK_FIELDS
#define block_reset(b, i) skip

#include "cell.pml"

byte buffer[N];         /* op + 1 while lent to that operation, else the owner's own */

#define CAN_READ (fresh < N && (!dead[fresh] || !KEEPS(NOTHING_READ_OF_THE_DEAD)))

/* One peer after the other; `fresh` counts them. Of one that is dead the system
 * gives nothing: then this member waits, until somebody notices. */
inline pull_read()
{
    fresh = 0;
    do
    :: d_step { CAN_READ -> g_wrong = g_wrong || buffer[fresh] != op + 1; fresh++ }
    :: atomic { fresh == N -> fresh = NONE; break }
    GIVING_UP
    od;
    if
    :: KEEPS(IN_PLACE_SHOWS_A_COPY)
    :: else -> buffer[me] = 0 /* the result replaces what others read */
    fi
}

/* Leaves state == ARRIVED, or FAILED when the operation is revoked. */
inline cell_finish()
{
    d_step {
        if
        :: state == FAILED
        :: state == ARRIVED && cell[way].revoked && KEEPS(FINISH_CHECKS_REVOKED) -> state = FAILED
        :: else -> cell[way].finished++
        fi
    }
}

inline pull_run()
{
    do
    :: atomic { cell[way].arrived == N || !KEEPS(READ_AFTER_ALL_ARRIVED) -> break }
    GIVING_UP
    od;
    if
    :: state == ARRIVED && KEEPS(COUNT_AFTER_READ) -> pull_read(); cell_finish()
    :: state == ARRIVED && !KEEPS(COUNT_AFTER_READ) -> cell_finish(); pull_read()
    :: state == FAILED
    fi;
    do
    :: state == FAILED -> break
    :: atomic { state == ARRIVED && (COMMITTED(way) || !KEEPS(SUCCESS_AFTER_COMMIT)) ->
                state = GOOD; break }
    GIVING_UP
    od
}

/* The owner may refill its buffer, free it, or unmap it. */
inline buffer_take_back()
{
    assert(state == FAILED || !g_wrong); /* a wrong buffer was read */
    buffer[me] = 0;
    g_wrong = 0
}

proctype rank(byte me; byte caller)
{
    LOCALS;
    bit g_wrong;

    {
        do
        :: round == LAST || ABSENT && me == N - 1 -> break
        :: atomic { round < LAST -> call_begin(); buffer[me] = op + 1 };
           cell_enter();
           if
           :: state == ENTERED -> cell_arrive()
           :: else
           fi;
           if
           :: state == ARRIVED -> pull_run()
           :: else
           fi;
           if
           :: state == GOOD -> cell_leave()
           :: TOGETHER { state == FAILED -> call_fail() }
           fi;
           atomic { buffer_take_back(); call_return() }
        od
    } unless {
        d_step { dead[me] -> FORGET_CALL; g_wrong = 0; round = 0; buffer[me] = 0 }
    };
    g_gone[me * CALLERS + caller] = 1
}

init
{
    world_run()
}
