/* The doorbell of src/core/wait.c: two threads of one process wait for different
 * things on one futex word, two ringers of other processes bring them. There is
 * no timeout here: a lost wake-up is an invalid end state.
 *
 * futex_wait is one step in the kernel: it compares the word and goes to sleep,
 * or returns. */

#ifndef DEATHS
#define DEATHS 0        /* 1: a ringer may die between any two steps; the watch tells */
#endif
#ifndef WITHOUT
#define WITHOUT 0       /* the one rule that a mutant drops */
#endif

#define KEEPS(rule) (WITHOUT != rule)
#define STATE_BEFORE_BELL    1
#define BELL_BEFORE_RECHECK  2
#define ANNOUNCE_BEFORE_WAIT 3
#define SLEEPERS_READ_LAST   4
#define WAKE_ALL             5
#define WATCH_RINGS          6

byte arrived;           /* what the sleepers wait for: 1, and 2 */
bit aborted;
byte bell;
byte sleepers;
bit asleep[2];
bit dead[2];
bit g_died;

inline wake()
{
    atomic {
        if
        :: seen == 0
        :: seen > 0 && KEEPS(WAKE_ALL) -> asleep[0] = 0; asleep[1] = 0
        :: seen > 0 && !KEEPS(WAKE_ALL) -> asleep[0] = 0
        :: seen > 0 && !KEEPS(WAKE_ALL) -> asleep[1] = 0
        fi;
        seen = 0
    }
}

inline ring()
{
    bell++;
    seen = sleepers;
    wake()
}

proctype ringer(byte me)
{
    byte seen;

    {
        if
        :: !KEEPS(STATE_BEFORE_BELL) -> ring(); arrived++
        :: !KEEPS(SLEEPERS_READ_LAST) ->
           seen = sleepers;
           arrived++;
           bell++;
           wake()
        :: else -> arrived++; ring()
        fi
    } unless {
        d_step { dead[me] -> seen = 0 }
    }
}

#define CONDITION (arrived >= want || aborted)

proctype sleeper(byte me; byte want)
{
    byte before;

    do
    :: before = bell;
       if
       :: CONDITION -> break
       :: else
       fi;
       if
       :: !KEEPS(BELL_BEFORE_RECHECK) -> before = bell
       :: KEEPS(BELL_BEFORE_RECHECK)
       fi;
       if
       :: KEEPS(ANNOUNCE_BEFORE_WAIT) -> sleepers++
       :: !KEEPS(ANNOUNCE_BEFORE_WAIT)
       fi;
       d_step { asleep[me] = (bell == before); before = 0 };
       if
       :: KEEPS(ANNOUNCE_BEFORE_WAIT)
       :: !KEEPS(ANNOUNCE_BEFORE_WAIT) -> sleepers++
       fi;
       !asleep[me];
       sleepers--
    od
}

/* A ringer that dies between its change and the bell leaves sleepers behind: the
 * watch of a living process aborts the comm and rings for it. */
proctype watch()
{
    byte seen;

end:
    g_died;
    if
    :: KEEPS(WATCH_RINGS) -> aborted = 1; ring()
    :: else -> aborted = 1
    fi
}

init
{
    atomic {
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
    fi
}
