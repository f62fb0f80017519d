/* The doorbell of src/core/world/wait.c: two threads of one process wait for different
 * things on one futex word, two ringers of other processes bring them. There is
 * no timeout here: a lost wake-up is an invalid end state.
 *
 * Ringers leave the bell alone while nobody sleeps, so all hangs on two orders: a
 * ringer changes the state and then reads `sleepers`, a sleeper counts itself and
 * then looks at the state. futex_wait is one step in the kernel: it compares the
 * word and goes to sleep, or returns. */

#ifndef DEATHS
#define DEATHS 0        /* 1: a ringer may die between any two steps; the watch tells */
#endif

#include "rules.pml"
#define STATE_BEFORE_SLEEPERS 1 /* the fence of the ringer */
#define ANNOUNCE_BEFORE_LOOK  2 /* and that of the sleeper */
#define LOOK_ONCE_MORE        3
#define BELL_BEFORE_LOOK      4
#define ANNOUNCED_IN_SLEEP    5
#define BELL_BEFORE_WAKE      6
#define WAKE_ALL              7
#define WATCH_RINGS           8
#define TAKE_BACK             9

byte arrived;           /* what the sleepers wait for: 1, and 2 */
bit aborted;
byte bell;
byte sleepers;
bit asleep[2];
bit dead[2];
bit g_died;
byte g_awake;           /* sleepers that have gone on */

inline wake()
{
    atomic {
        if
        :: KEEPS(WAKE_ALL) -> asleep[0] = 0; asleep[1] = 0
        :: !KEEPS(WAKE_ALL) -> asleep[0] = 0
        :: !KEEPS(WAKE_ALL) -> asleep[1] = 0
        fi;
        seen = 0
    }
}

inline ring_if_seen()
{
    if
    :: seen == 0
    :: seen > 0 && KEEPS(BELL_BEFORE_WAKE) -> bell++; wake()
    :: seen > 0 && !KEEPS(BELL_BEFORE_WAKE) -> wake()
    fi
}

proctype ringer(byte me)
{
    byte seen;

    {
        if
        :: KEEPS(STATE_BEFORE_SLEEPERS) -> arrived++; seen = sleepers
        :: !KEEPS(STATE_BEFORE_SLEEPERS) -> seen = sleepers; arrived++
        fi;
        ring_if_seen()
    } unless {
        d_step { dead[me] -> seen = 0 }
    }
}

#define CONDITION (arrived >= want || aborted)

/* Leaves done == 1 when the wait is over. */
inline look()
{
    done = CONDITION
}

inline announce()
{
    d_step { sleepers++; announced = 1 }
}

inline take_back()
{
    d_step {
        if
        :: announced && KEEPS(TAKE_BACK) -> sleepers--
        :: else
        fi;
        announced = 0
    }
}

/* One turn: a look of a spinning waiter, then the last look of one that is about
 * to sleep. The mutants have the same steps in another order. */
proctype sleeper(byte me; byte want)
{
    byte before;
    bit done, announced;

    do
    :: look();
       if
       :: done -> break
       :: else
       fi;
       if
       :: KEEPS(ANNOUNCE_BEFORE_LOOK) -> announce()
       :: else
       fi;
       if
       :: KEEPS(BELL_BEFORE_LOOK) -> before = bell
       :: else
       fi;
       if
       :: KEEPS(LOOK_ONCE_MORE) -> look()
       :: else
       fi;
       if
       :: done -> break
       :: else
       fi;
       if
       :: !KEEPS(ANNOUNCE_BEFORE_LOOK) -> announce()
       :: !KEEPS(BELL_BEFORE_LOOK) -> before = bell
       :: !KEEPS(ANNOUNCED_IN_SLEEP) -> take_back()
       :: else
       fi;
       d_step { asleep[me] = (bell == before); before = 0 };
       !asleep[me];
       take_back()
    od;
    take_back();
    g_awake++
}

/* A ringer that dies between its change and the bell leaves sleepers behind: the
 * watch of a living process aborts the comm and rings for it. */
proctype watch()
{
    byte seen;

end:
    g_died;
    aborted = 1;
    if
    :: KEEPS(WATCH_RINGS) -> seen = sleepers; ring_if_seen()
    :: else
    fi
}

init
{
    atomic {
        choose_rules();
        run sleeper(0, 1);
        run sleeper(1, 2);
        run ringer(0);
        run ringer(1);
        if
        :: DEATHS -> run watch()
        :: else
        fi
    };
    if
    :: DEATHS -> d_step { dead[0] = 1; g_died = 1 }
    :: skip
    fi;
    g_awake == 2;
    assert(sleepers == 0) /* or every later ring would cost a system call */
}
