/* For lane.pml: what the rank's thread can do for its operation x in a cell. A large one has
 * arrived in the lane with its record alone and has waited for nobody there; one that is staged
 * waits there for all, and then for nobody in the cell; one that was shown has met all members
 * there, and reads their payloads (where their rows are) until its end.
 *
 * What cells do is in cell.pml, and how data moves in staged.pml, pull.pml and direct.pml: here
 * one step moves it, and `finished` is all that matters. The cell compares records, too, but not
 * those of earlier operations; it is left out, so that what the lane finds is all there is. */

/* The arrival in the cell releases the one in the lane. */
inline cell_arrive()
{
    d_step {
        if
        :: KEEPS(LANE_BEFORE_CELL) -> flush(me)
        :: else
        fi;
        if
        :: cell[s].revoked -> state[s] = FAILED
        :: else -> cell[s].arrived++; state[s] = INSIDE
        fi;
        if
        :: state[s] == INSIDE && !KEEPS(COMPLETED_AT_THE_END) -> lane_done()
        :: else
        fi
    }
}

/* As the code does: a member that is not there does not differ. */
inline cell_compare()
{
    d_step {
        if
        :: OF_SOME(IS_UNLIKE, s) && KEEPS(COMPARED_IN_CELL) ->
           assert(cell[s].finished < N);
           cell[s].revoked = 1;
           state[s] = FAILED;
           why = WHY_MISMATCH
        :: else -> state[s] = MOVES
        fi
    }
}

inline cell_finish()
{
    d_step {
        if
        :: KIND(me, s) == A_SHOWN_ONE -> lane_read()
        :: else
        fi;
        if
        :: cell[s].revoked -> state[s] = FAILED
        :: else -> cell[s].finished++; state[s] = MOVED
        fi
    }
}

#define OUTCOME_OF_STEP                                                        \
       if                                                                      \
       :: state[s] == FAILED -> call_fail()                                    \
       :: else -> s = 0                                                        \
       fi

#define IS_IN_CELL(x)   (state[x] >= INSIDE && state[x] <= MOVED)
#define IS_COMMITTED(x) (cell[x].finished == N)
#define FINDS_OTHER(x)                                                         \
    (OF_SOME(IS_UNLIKE, x) && KEEPS(WAIT_LOOKS_IN_LANE) &&                     \
     (state[x] == ENTERS || state[x] == INSIDE && cell[x].arrived < N))

/* Nothing depends on where a staged one waits: all finish, or none. */
#define MAY_ENTER(x) (!IS(STAGED, x) || OF_ALL(HAS_ARRIVED, x))
#define HAVE_MET(x)  (cell[x].arrived == N || IS(STAGED, x))

#define STEPS_IN_CELL(x)                                                       \
    :: atomic { state[x] == ENTERS && MAY_ENTER(x) -> s = x; cell_arrive() };  \
       OUTCOME_OF_STEP                                                         \
    :: atomic { state[x] == INSIDE && HAVE_MET(x) && !cell[x].revoked ->       \
                s = x; cell_compare() };                                       \
       OUTCOME_OF_STEP                                                         \
    :: atomic { state[x] == MOVES -> s = x; cell_finish() };                   \
       OUTCOME_OF_STEP                                                         \
    :: atomic { state[x] == MOVED && (IS_COMMITTED(x) || !KEEPS(LARGE_COMMITS_IN_CELL)) -> s = x }; \
       call_succeed()                                                          \
    :: atomic { IS_IN_CELL(x) && cell[x].revoked -> s = x; state[x] = FAILED }; \
       call_fail()                                                             \
    :: atomic { FINDS_OTHER(x) -> s = x; why = WHY_MISMATCH;                   \
                cell[x].revoked = cell[x].revoked || state[x] == INSIDE;       \
                state[x] = FAILED };                                           \
       call_fail()                                                             \
    :: atomic { IS_IN_CELL(x) && !IS_COMMITTED(x) && !cell[x].revoked && GIVES_UP -> \
                s = x; state[x] = FAILED; cell[x].revoked = KEEPS(LARGE_REVOKES_CELL); \
                why = (ABORTED -> WHY_NOTHING : WHY_LATE) };                   \
       call_fail()                                                             \
    :: atomic { state[x] == ENTERS && GIVES_UP -> s = x; state[x] = FAILED;    \
                why = (ABORTED -> WHY_NOTHING : WHY_LATE) };                   \
       call_fail()
