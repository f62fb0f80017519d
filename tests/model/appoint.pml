/* Appointments, as in src/core/nccl/appoint.c: members of a group that make the same calls and, in one
 * that they have agreed on, do something together that blocks until all do it and cannot be given
 * up. Any of them may want that in any call. A member may stop making calls, and one that waits
 * may give up. Nobody may be left alone in what blocks, and all must return. */

#ifndef N
#define N 2
#endif
#ifndef CALLS
#define CALLS 4
#endif

byte deadlines;         /* how many members may give up waiting */
bit absent;             /* the last member may stop making calls */
bit stranger;           /* somebody may call appointments off */

#include "rules.pml"

#define COUNTED_UNDER_LOCK  1
#define AFTER_THE_LAST      2
#define ONLY_ONE_AT_A_TIME  3
#define ALL_COME_FIRST      4
#define LEAVING_LOOKS       5
#define LEAVING_IS_ONE_STEP 6
#define THE_LAST_RESETS     7
#define CALL_COMES_LAST     8
#define WAIT_HAS_DEADLINE   9
#define WAIT_POLLS_OFF      10

bit lock;
byte calls[N];
byte at;                /* the call in which all meet; 0: none */
byte came;
byte left;
bit off;
bit aborted;

byte together[CALLS + 2]; /* members that have begun what blocks, in each call */

/* oriel_appoint_call() */
inline make()
{
    d_step {
        last = calls[r];
        if
        :: KEEPS(AFTER_THE_LAST) ->
           for (i : 0 .. N - 1) {
               if
               :: calls[i] > last -> last = calls[i]
               :: else
               fi
           }
        :: else
        fi;
        i = 0
    };
    if
    :: at == 0 || !KEEPS(ONLY_ONE_AT_A_TIME) ->
       if
       :: !off -> at = last + 1
       :: else
       fi
    :: else
    fi;
    last = 0
}

inline begin_call()
{
    if
    :: KEEPS(COUNTED_UNDER_LOCK) -> atomic { lock == 0 -> lock = 1 }
    :: else
    fi;
    calls[r] = call;
    due = at == call;
    if
    :: make()
    :: skip
    fi;
    if
    :: KEEPS(COUNTED_UNDER_LOCK) -> lock = 0
    :: else
    fi
}

/* retract(): leaves `gone` where not all have come. */
inline retract()
{
    if
    :: KEEPS(LEAVING_LOOKS) && KEEPS(LEAVING_IS_ONE_STEP) ->
       d_step {
           if
           :: came < N -> came--; gone = 1
           :: else
           fi
       }
    :: KEEPS(LEAVING_LOOKS) && !KEEPS(LEAVING_IS_ONE_STEP) ->
       if
       :: came < N -> came--; gone = 1
       :: else
       fi
    :: else -> d_step { came--; gone = 1 }
    fi
}

/* oriel_appoint_meet() */
inline meet()
{
    came++;
    do
    :: gone || came >= N || !KEEPS(ALL_COME_FIRST) -> break
    :: !gone && came < N && deadlines > 0 && KEEPS(WAIT_HAS_DEADLINE) ->
       d_step { deadlines--; late = 1 };
       retract();
       if
       :: gone -> aborted = 1
       :: else
       fi
    :: !gone && came < N && (aborted || off) && KEEPS(WAIT_POLLS_OFF) -> retract()
    od
}

/* oriel_appoint_leave() */
inline leave()
{
    d_step { left++; last = left };
    if
    :: last == N || !KEEPS(THE_LAST_RESETS) ->
       if
       :: KEEPS(CALL_COMES_LAST) -> left = 0; came = 0; at = 0
       :: else -> at = 0; left = 0; came = 0
       fi
    :: else
    fi;
    last = 0
}

proctype member(byte r)
{
    byte call, i, last;
    bit due, gone, late;

    for (call : 1 .. CALLS) {
        if
        :: aborted -> break
        :: absent && r == N - 1 -> break
        :: !aborted -> skip
        fi;
        begin_call();
        if
        :: due ->
           meet();
           if
           :: gone && aborted -> break
           :: gone && !aborted -> gone = 0
           :: !gone ->
              together[call]++;
              together[call] == N; /* blocks, and cannot be given up */
              leave()
           fi
        :: else
        fi;
        due = 0
    }
}

proctype visitor()
{
    off = 1
}

init
{
    byte r;

    atomic {
        choose_rules();
        c_code {
            now.deadlines = getenv("DEADLINES") ? atoi(getenv("DEADLINES")) : 0;
            now.absent = getenv("ABSENT") != 0;
            now.stranger = getenv("STRANGER") != 0;
        };
        for (r : 0 .. N - 1) {
            run member(r)
        };
        if
        :: stranger -> run visitor()
        :: else
        fi
    }
}
