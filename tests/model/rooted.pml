/* Calls in a lane that need one member alone, whose data has a source (begin_scan in
 * src/ops/host/request.c); and payloads of different sizes, of which large ones take all places
 * at once (place_of in src/core/protocol/lane.c).
 *
 * The conventions are those of lane.pml. There is no agreement here: a member that has its part
 * may succeed while another fails. What is left: nobody succeeds with anything but its
 * source's data of this very call, nothing succeeds that was begun after a failure had
 * been returned, and all return. Stores are seen at once: a member that waits for one word needs
 * nothing but what was stored before it. */

#ifndef N
#define N 2             /* members: 2 or 3 */
#endif
#ifndef OPS
#define OPS 3           /* calls, counted from 1 */
#endif
#ifndef D
#define D 2             /* slots, and as many places for payloads: 1 to 3 */
#endif
#ifndef RING
#define RING 0          /* 0: member 0 gives to 1, that to 2; 1: the last to 0, too; ... */
#endif
#ifndef BROADCAST
#define BROADCAST 0     /* ... 1: member 0 gives to all */
#endif
#ifndef WHOLE
#define WHOLE 0         /* bit s-1: the payload of call s takes all places */
#endif
#ifndef DEATHS
#define DEATHS 0        /* 1: the first member may die, anywhere */
#endif
#ifndef DEADLINES
#define DEADLINES 0     /* 1: a deadline may fire in any wait */
#endif
#ifndef ABSENT
#define ABSENT 0        /* 1: the last member may stop calling, alive */
#endif
#ifndef MISMATCH
#define MISMATCH 0      /* s: the first member asks for something else at number s */
#endif
#ifndef STRANGER
#define STRANGER 0      /* 1: something else may revoke the comm at any time */
#endif

#define FAULTS (DEATHS || DEADLINES || MISMATCH || STRANGER)

#include "rules.pml"

#define SUCCESS_NEEDS_SOURCE    1
#define RECORDS_ARE_COMPARED    2
#define WRITE_WAITS_FOR_ROOM    3
#define ROOM_ASKS_ALL           4
#define DONE_AFTER_READ         5
#define PAYLOAD_BEFORE_ARRIVE   6
#define FAILURE_ABORTS_COMM     7
#define ENTRY_CHECKS_ABORT      8
#define WAIT_POLLS_ABORT        9
#define WAIT_HAS_DEADLINE       10
#define WHOLE_WAITS_FOR_ALL     11
#define PART_WAITS_FOR_WHOLE    12

#define GOOD   8        /* as in cell.pml */
#define FAILED 9
#define NOBODY N

typedef Slot {
    byte seq;           /* the word */
    byte record;
}

typedef Seal {
    byte seq;
    bit revoked;        /* else committed */
}

Slot slot[N * D];
byte place[N * D];      /* the call whose data it holds, or a part of that */
Seal seal[D];
byte completed[N];
bit aborted;            /* the comm's abort word */

bit dead[N];
bit g_gone[N];
bit g_failed;           /* a failure has been returned to somebody */

#define WORD(j, s)   slot[(j) * D + (s) % D]
#define RECORD(j, s) ((j) == 0 && (s) == MISMATCH -> 100 : 1)
#define SOURCE                                                                 \
    (BROADCAST -> (me == 0 -> NOBODY : 0) :                                    \
                  (me > 0 -> me - 1 : (RING -> N - 1 : NOBODY)))

#define IS_THERE(j, s) (WORD(j, s).seq == s)
#define IS_LIKE(j, s)  (WORD(j, s).record == RECORD(me, s) || !KEEPS(RECORDS_ARE_COMPARED))
#define ALL_THERE(s)   (IS_THERE(0, s) && IS_THERE(1, s) && IS_THERE(N - 1, s))
#define MISSING        (who != NOBODY && !IS_THERE(who % N, s))
#define REVOKED(s)     (seal[(s) % D].seq == s && seal[(s) % D].revoked)

/* The call that all must have completed before s is written. */
#define IS_WHOLE(s) ((WHOLE >> ((s) - 1)) & 1)
#define TURN(s)     (s <= D -> 0 : s - D)
#define LAST_USE(s)                                                            \
    (IS_WHOLE(s) && KEEPS(WHOLE_WAITS_FOR_ALL) -> s - 1 :                      \
     (whole > TURN(s) && KEEPS(PART_WAITS_FOR_WHOLE) -> whole : TURN(s)))
#define HAS_READ(j, s) (completed[j] >= LAST_USE(s))
#define ROOM(s)                                                                \
    (!KEEPS(WRITE_WAITS_FOR_ROOM) ||                                           \
     HAS_READ(0, s) && HAS_READ(1, s) && HAS_READ(N - 1, s) ||                 \
     !KEEPS(ROOM_ASKS_ALL) && HAS_READ(me, s))

#define POLLS_ABORT (aborted && KEEPS(WAIT_POLLS_ABORT))
#define GIVES_UP    (POLLS_ABORT || DEADLINES && KEEPS(WAIT_HAS_DEADLINE))

/* ---- steps ---------------------------------------------------------------- */

inline lane_write()
{
    d_step {
        WORD(me, s).record = RECORD(me, s);
        place[me * D + s % D] = s;
        if
        :: IS_WHOLE(s) ->
           place[me * D + (s + 1) % D] = s;
           place[me * D + (s + 2) % D] = s;
           whole = s
        :: else
        fi
    }
}

/* Waits for room and arrives; or gives up and touches nothing. */
inline lane_arrive()
{
    if
    :: ROOM(s) ->
       if
       :: KEEPS(PAYLOAD_BEFORE_ARRIVE)
       :: else -> WORD(me, s).seq = s
       fi;
       lane_write();
       WORD(me, s).seq = s
    :: atomic { !ROOM(s) && GIVES_UP -> state = FAILED }
    fi
}

/* Arrived: waits for member `who` alone. Once its word is there it stays, so the look
 * at the seal after it is the step that counts. lane.pml has the seal in detail; nobody
 * has to agree here, so it is one step. */
inline lane_wait()
{
    do
    :: atomic { !MISSING ->
                if
                :: REVOKED(s) || who != NOBODY && !IS_LIKE(who % N, s) -> state = FAILED
                :: else
                fi;
                break }
    :: atomic { MISSING && REVOKED(s) -> state = FAILED; break }
    :: atomic { MISSING && !REVOKED(s) && GIVES_UP ->
                seal[s % D].seq = s;
                seal[s % D].revoked = !ALL_THERE(s) }
    od
}

inline lane_read()
{
    d_step {
        if
        :: SOURCE != NOBODY ->
           assert(place[SOURCE % N * D + s % D] == s && IS_THERE(SOURCE % N, s));
           assert(!IS_WHOLE(s) || place[SOURCE % N * D + (s + 1) % D] == s &&
                                  place[SOURCE % N * D + (s + 2) % D] == s);
           assert(WORD(SOURCE % N, s).record == RECORD(me, s))
        :: else
        fi
    }
}

inline call_run()
{
    lane_arrive();
    if
    :: state != FAILED && KEEPS(SUCCESS_NEEDS_SOURCE) -> who = SOURCE; lane_wait()
    :: else
    fi;
    if
    :: state == FAILED
    :: state != FAILED && KEEPS(DONE_AFTER_READ) -> lane_read(); completed[me] = s
    :: state != FAILED && !KEEPS(DONE_AFTER_READ) -> completed[me] = s; lane_read()
    fi
}

inline call_return()
{
    d_step {
        assert(state == FAILED || !g_late);
        assert(state == GOOD || FAULTS);
        g_failed = g_failed || state == FAILED;
        g_late = 0;
        who = 0
    }
}

inline call_fail()
{
    if
    :: !KEEPS(FAILURE_ABORTS_COMM) -> call_return()
    :: KEEPS(FAILURE_ABORTS_COMM) -> aborted = 1; call_return()
    fi
}

proctype member(byte me)
{
    byte s, state, who, whole;
    bit g_late;

    {
        do
        :: s >= OPS || ABSENT && me == N - 1 -> break
        :: s < OPS ->
           atomic {
               s++;
               g_late = g_failed;
               state = (aborted && KEEPS(ENTRY_CHECKS_ABORT) -> FAILED : GOOD)
           };
           if
           :: state == FAILED
           :: else -> call_run()
           fi;
           if
           :: state == FAILED -> call_fail()
           :: else -> call_return()
           fi
        od
    } unless {
        dead[me]
    };
    skip;
    d_step { /* old values of variables would only multiply the states */
        s = 0; state = 0; who = 0; whole = 0; g_late = 0;
        g_gone[me] = 1
    }
}

/* ---- the world around ------------------------------------------------------ */

proctype fate()
{
    if
    :: dead[0] = 1; aborted = 1
    :: skip
    fi
}

proctype stranger()
{
    if
    :: aborted = 1
    :: skip
    fi
}

init
{
    byte r;

    atomic {
        choose_rules();
        for (r : 0 .. N - 1) {
            run member(r)
        }
        if
        :: DEATHS -> run fate()
        :: else
        fi;
        if
        :: STRANGER -> run stranger()
        :: else
        fi
    };
    for (r : 0 .. N - 1) {
        g_gone[r]
    }
}
