/* Calls in a lane that need one member alone: small ones whose data has a source
 * (oriel_lane_one in src/core/lane.c, src/ops/quick.c), and permute in pairs, which
 * reads its source's memory and takes two numbers (oriel_pull_paired in
 * src/ops/pull.c, read_others in src/ops/request.c).
 *
 * The conventions are those of lane.pml. There is no agreement here: who has its part
 * may succeed while another fails. What is left: nobody succeeds with anything but its
 * source's data of this very call, nothing succeeds that was begun after a failure had
 * been returned, and all return. Stores are seen at once: who waits for one word needs
 * nothing but what was stored before it. */

#ifndef N
#define N 2             /* members: 2 or 3 */
#endif
#ifndef OPS
#define OPS 3           /* calls, counted from 1 */
#endif
#ifndef D
#define D 2             /* slots */
#endif
#ifndef RING
#define RING 0          /* 0: member 0 gives to 1, that to 2; 1: the last to 0, too; ... */
#endif
#ifndef BROADCAST
#define BROADCAST 0     /* ... 1: member 0 gives to all */
#endif
#ifndef PAIRED
#define PAIRED 0        /* 1: the data is read out of the source's memory */
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
#define READ_BEFORE_SECOND      11
#define ABORT_READ_AFTER_MEMORY 12
#define ABORT_BEFORE_RETURN     13
#define SUCCESS_NEEDS_READER    14
#define IN_PLACE_SHOWS_A_COPY   15
#define NOTHING_READ_OF_THE_DEAD 16

#define GOOD   8        /* as in cell.pml */
#define FAILED 9
#define NOBODY N

typedef Slot {
    byte seq;           /* the word */
    byte record;
    byte payload;       /* the call's data, or where it is */
}

typedef Seal {
    byte seq;
    bit revoked;        /* else committed */
}

Slot slot[N * D];
Seal seal[D];
byte completed[N];
byte memory[N];         /* the call that the member's own memory holds the data of */
bit aborted;            /* the comm's abort word */

bit dead[N];
bit g_gone[N];
bit g_failed;           /* a failure has been returned to somebody */

#define WORD(j, s)   slot[(j) * D + (s) % D]
#define RECORD(j, s) ((j) == 0 && (s) == MISMATCH -> 100 : 1)
#define SOURCE                                                                 \
    (BROADCAST -> (me == 0 -> NOBODY : 0) :                                    \
                  (me > 0 -> me - 1 : (RING -> N - 1 : NOBODY)))
#define READER (me < N - 1 -> me + 1 : (RING -> 0 : NOBODY))

#define IS_THERE(j, s) (WORD(j, s).seq == s)
#define IS_LIKE(j, s)  (WORD(j, s).record == RECORD(me, s) || !KEEPS(RECORDS_ARE_COMPARED))
#define ALL_THERE(s)   (IS_THERE(0, s) && IS_THERE(1, s) && IS_THERE(N - 1, s))
#define MISSING        (who != NOBODY && !IS_THERE(who % N, s))
#define REVOKED(s)     (seal[(s) % D].seq == s && seal[(s) % D].revoked)

#define HAS_READ(j, s) (completed[j] + D >= s)
#define ROOM(s)                                                                \
    (s <= D || !KEEPS(WRITE_WAITS_FOR_ROOM) ||                                 \
     HAS_READ(0, s) && HAS_READ(1, s) && HAS_READ(N - 1, s) ||                 \
     !KEEPS(ROOM_ASKS_ALL) && HAS_READ(me, s))

#define POLLS_ABORT (aborted && KEEPS(WAIT_POLLS_ABORT))
#define GIVES_UP    (POLLS_ABORT || DEADLINES && KEEPS(WAIT_HAS_DEADLINE))

/* ---- steps ---------------------------------------------------------------- */

/* Waits for room and arrives; or gives up and touches nothing. */
inline lane_arrive()
{
    if
    :: ROOM(s) ->
       if
       :: KEEPS(PAYLOAD_BEFORE_ARRIVE)
       :: else -> WORD(me, s).seq = s
       fi;
       d_step { WORD(me, s).record = RECORD(me, s); WORD(me, s).payload = s };
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
           assert(WORD(SOURCE % N, s).payload == s && IS_THERE(SOURCE % N, s));
           assert(WORD(SOURCE % N, s).record == RECORD(me, s))
        :: else
        fi
    }
}

inline small_run()
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

/* Of the dead the system gives nothing; their end will be noticed. One step: every
 * piece is read before the look at the abort word. */
inline pair_read()
{
    if
    :: SOURCE == NOBODY
    :: atomic { SOURCE != NOBODY && (!dead[SOURCE % N] || !KEEPS(NOTHING_READ_OF_THE_DEAD)) ->
                g_wrong = memory[SOURCE % N] != s || dead[SOURCE % N] }
    :: atomic { SOURCE != NOBODY && dead[SOURCE % N] && KEEPS(NOTHING_READ_OF_THE_DEAD) &&
                GIVES_UP -> state = FAILED }
    fi;
    if /* what it got lies where its own was */
    :: KEEPS(IN_PLACE_SHOWS_A_COPY)
    :: else -> memory[me] = 0
    fi;
    if
    :: aborted && KEEPS(ABORT_READ_AFTER_MEMORY) -> state = FAILED
    :: else
    fi
}

inline pair_second()
{
    s++;
    lane_arrive();
    s--
}

inline pair_run()
{
    memory[me] = s;
    lane_arrive();
    if
    :: state != FAILED && KEEPS(SUCCESS_NEEDS_SOURCE) -> who = SOURCE; lane_wait()
    :: else
    fi;
    if
    :: state != FAILED && !KEEPS(READ_BEFORE_SECOND) -> pair_second()
    :: else
    fi;
    if
    :: state != FAILED -> pair_read()
    :: else
    fi;
    if
    :: state != FAILED && KEEPS(READ_BEFORE_SECOND) -> pair_second()
    :: else
    fi;
    s++;
    if
    :: state != FAILED && KEEPS(SUCCESS_NEEDS_READER) -> who = READER; lane_wait()
    :: else
    fi;
    if
    :: state != FAILED -> completed[me] = s
    :: else
    fi
}

/* The memory is the caller's again. */
inline call_return()
{
    d_step {
        memory[me] = 0;
        assert(state == FAILED || !g_wrong);
        assert(state == FAILED || !g_late);
        assert(state == GOOD || FAULTS);
        g_failed = g_failed || state == FAILED;
        g_wrong = 0;
        g_late = 0;
        who = 0
    }
}

inline call_fail()
{
    if
    :: !KEEPS(FAILURE_ABORTS_COMM) -> call_return()
    :: KEEPS(FAILURE_ABORTS_COMM) && KEEPS(ABORT_BEFORE_RETURN) -> aborted = 1; call_return()
    :: !KEEPS(ABORT_BEFORE_RETURN) -> call_return(); aborted = 1
    fi
}

proctype member(byte me)
{
    byte s, state, who;
    bit g_wrong, g_late;

    {
        do
        :: s >= OPS * (1 + PAIRED) || ABSENT && me == N - 1 -> break
        :: s < OPS * (1 + PAIRED) ->
           atomic {
               s++;
               g_late = g_failed;
               state = (aborted && KEEPS(ENTRY_CHECKS_ABORT) -> FAILED : GOOD)
           };
           if
           :: state == FAILED -> s = s + PAIRED
#if PAIRED
           :: else -> pair_run()
#else
           :: else -> small_run()
#endif
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
        s = 0; state = 0; who = 0; g_wrong = 0; g_late = 0;
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
