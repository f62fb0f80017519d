/* For lane.pml: what the rank's thread can do for its operation x, a large one, when all have
 * arrived at its first number. */

/* All large ones were alike in the lane. In a cell the commit is all that matters
 * here: all inside, unless revoked. */
#define STEPS_IN_CELL(x)                                                       \
    :: atomic { state[x] == SHOWN ->                                           \
                if                                                             \
                :: cell[x].revoked -> s = x; state[x] = FAILED                 \
                :: else -> cell[x].arrived++; state[x] = INSIDE                \
                fi };                                                          \
       if                                                                      \
       :: s != 0 -> call_fail()                                                \
       :: else                                                                 \
       fi                                                                      \
    :: atomic { state[x] == INSIDE && cell[x].arrived == N ||                  \
                state[x] == SHOWN && !KEEPS(LARGE_COMMITS_IN_CELL) -> s = x }; \
       call_succeed()                                                          \
    :: atomic { state[x] == INSIDE && cell[x].revoked -> s = x; state[x] = FAILED }; \
       call_fail()                                                             \
    :: atomic { state[x] == INSIDE && cell[x].arrived < N && !cell[x].revoked && GIVES_UP -> \
                s = x; state[x] = FAILED; cell[x].revoked = KEEPS(LARGE_REVOKES_CELL); \
                why = (ABORTED -> WHY_NOTHING : WHY_LATE) };                   \
       call_fail()

/* Reads of all are one step: each could come at that time. Of the dead the system
 * gives nothing. Wrong data is known to the model alone (g_wrong). */
inline pull_read()
{
    d_step {
        for (j : 0 .. N - 1) {
            g_wrong = g_wrong || !LENT(j, s)
        }
        j = 0
    }
}

#define CAN_READ(x)                                                            \
    (!dead[0] && (state[x] == SHOWN ||                                         \
                  state[x] == ARRIVED && IS_LARGE(x) && !KEEPS(READ_AFTER_ALL_SHOWN)))

/* Those who have read arrive at the second number, which commits like a small one. */
#define STEPS_OF_PULL(x)                                                       \
    :: atomic { CAN_READ(x) -> s = x;                                          \
                if                                                             \
                :: KEEPS(READ_BEFORE_SECOND) -> pull_read()                    \
                :: else                                                        \
                fi;                                                            \
                state[x] = HAS_READ_ALL; s = 0 }                               \
    :: atomic { state[x] == HAS_READ_ALL && state[(x) + 1] == SECOND && ROOM((x) + 1) && \
                KEEPS(SECOND_COMMITS) -> s = x + 1 };                          \
       lane_write();                                                           \
       lane_arrive();                                                          \
       if                                                                      \
       :: KEEPS(READ_BEFORE_SECOND) -> s = 0                                   \
       :: else -> s--; pull_read(); s = 0                                      \
       fi                                                                      \
    :: atomic { state[x] == HAS_READ_ALL && !KEEPS(SECOND_COMMITS) -> s = x }; \
       call_succeed()

#if PULL
#define STEPS_OF_LARGE(x) STEPS_OF_PULL(x)
#else
#define STEPS_OF_LARGE(x) STEPS_IN_CELL(x)
#endif

/* Before the second arrival nothing has to be told to anybody. */
#define GIVING_UP_LARGE(x)                                                     \
    :: atomic { (state[x] == SHOWN || state[x] == HAS_READ_ALL && state[(x) + 1] == SECOND) && \
                GIVES_UP -> s = x; state[x] = FAILED;                          \
                why = (ABORTED -> WHY_NOTHING : WHY_LATE) };                   \
       call_fail()
