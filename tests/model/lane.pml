/* The lane of a group, as in src/core/protocol/lane.c: one word per member and slot, which
 * its owner alone sets to its call, one seal per slot, by which those who give up
 * and those who see all words agree, and one count of completed operations per
 * member. docs/protocol.md says what each step is for.
 *
 * The conventions are those of cell.pml: one step is one access to memory that
 * others may change meanwhile, a poll is a blocking guard, a deadline is a choice
 * that is always open, names in g_ are ghosts. A scan over all words is one step:
 * what it looks for, once true, stays true while the member is in the operation
 * (and that is asserted). The comm's abort word is one step here; cell.pml has it
 * in detail.
 *
 * An arrival is a plain store: it stays in its member's store buffer, seen by that
 * member alone, until it is flushed, at any time (store_buffers) or by the member's
 * fence. No compare-and-swap flushes it here, although some processors' do. */

#ifndef N
#define N 2             /* members: 2 or 3 */
#endif
#ifndef OPS
#define OPS 3           /* operations, counted from 1 */
#endif
#ifndef D
#define D 2             /* slots */
#endif
#ifndef OPEN
#define OPEN 1          /* operations a member has open at once: 1 (blocking) or 2 */
#endif
#ifndef LARGE
#define LARGE 0         /* bit s-1: operation s does not fit the lane, and meets in a cell */
#endif
#ifndef STAGED
#define STAGED 0        /* bit s-1: a large operation s takes its cell once all have begun it */
#endif
#ifndef SHOWN
#define SHOWN 0         /* bit s-1: operation s meets in the lane, and goes on in a cell */
#endif
#ifndef ALONE
#define ALONE 0         /* bit s-1: operation s needs nobody: rooted.pml has more of it */
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
#define MISMATCH 0      /* s: the last member asks for something else in operation s, ... */
#endif
#ifndef INSTEAD
#define INSTEAD 0       /* ... which is of this kind; 0: of the same */
#endif
#ifndef STRANGER
#define STRANGER 0      /* 1: something else may revoke the comm at any time */
#endif

#define FAULTS (DEATHS || DEADLINES || MISMATCH || STRANGER)

#include "rules.pml"

#define FENCE_BEFORE_SEAL      1
#define ALL_THERE_READS_SEAL   2
#define GIVING_UP_SEALS        3
#define SEAL_BEFORE_LOOK       4
#define SEAL_LOOKS_AGAIN       5
#define DECIDED_ONCE           6
#define SEAL_NAMES_ITS_CALL    7
#define SEAL_AFTER_OWN_ARRIVAL 8
#define SUCCESS_NEEDS_ALL      9
#define RECORDS_ARE_COMPARED   10
#define FAILURE_ABORTS_COMM    11
#define ENTRY_CHECKS_ABORT     12
#define WAIT_POLLS_ABORT       13
#define WAIT_HAS_DEADLINE      14
#define WRITE_WAITS_FOR_ROOM   15
#define ROOM_ASKS_ALL          16
#define DONE_HAS_A_COUNTER     17
#define DONE_AFTER_READ        18
#define DONE_IS_A_PREFIX       19
#define PAYLOAD_BEFORE_ARRIVE  20
#define LARGE_COMMITS_IN_CELL  21
#define LARGE_REVOKES_CELL     22
#define DIGEST_HAS_HISTORY     23
#define COMPARED_IN_CELL       24
#define LANE_BEFORE_CELL       25
#define WAIT_LOOKS_IN_LANE     26
#define LARGE_IS_COMPLETED     27
#define COMPLETED_AT_THE_END   28

#define WHY_NOTHING  0
#define WHY_LATE     1
#define WHY_DEAD     2
#define WHY_MISMATCH 3
#define WHY_REVOKED  4

/* Where an operation of one member stands. */
#define WANTS   1       /* begun, waits for room */
#define ARRIVED 2
#define NEEDS_NOBODY 3  /* arrived, one that is alone */
#define ENTERS  4       /* a large one: it has yet to come to its cell, ... */
#define INSIDE  5       /* ... has arrived there, ... */
#define MOVES   6       /* ... all have, with the same calls before, ... */
#define MOVED   7       /* ... and it has what it needs of the others */
#define GOOD    8       /* as in cell.pml */
#define FAILED  9

/* Kinds of operations. */
#define A_SMALL_ONE 1
#define A_LARGE_ONE 2
#define A_SHOWN_ONE 3
#define ONE_ALONE   4

typedef Slot {
    byte seq;           /* the word: whose operation it is, ... */
    byte bound;         /* ... and what its owner had completed when it arrived */
    byte record;        /* the digest: of its record, and of those before */
    byte payload;
}

typedef Buffer {
    byte seq;           /* of the word that is under way; 0: none */
    byte bound;
}

/* How the operation of a seal stands. */
#define NOT_SEALED 0
#define SEALING    1    /* somebody gives up; to be decided */
#define REVOKED    2
#define COMMITTED  3

typedef Seal {
    byte seq;
    byte state;
}

typedef Cell {
    byte arrived;
    byte finished;
    bit revoked;
}

Slot slot[N * D];
Buffer buffer[N];
Seal seal[D];
byte completed[N];      /* all up to this one; written by the member alone */
Cell cell[OPS + 3];
byte abort_why;         /* the comm's abort word and record */

bit dead[N];
bit g_died;
bit g_gone[N];
bit g_failed;           /* a failure has been returned to somebody */
hidden byte g_mismatch; /* the operation is not the same on all members */
byte g_result[(OPS + 1) * N];

#define ABORTED    (abort_why != WHY_NOTHING)
#define WORD(j, s) slot[(j) * D + (s) % D]
#define IS(mask, s) (((mask) >> ((s) - 1)) & 1)
#define KIND(j, s)                                                             \
    ((j) == N - 1 && (s) == MISMATCH && INSTEAD != 0 -> INSTEAD :              \
     (IS(LARGE, s) -> A_LARGE_ONE :                                            \
      (IS(SHOWN, s) -> A_SHOWN_ONE : (IS(ALONE, s) -> ONE_ALONE : A_SMALL_ONE))))
#define DIFFERS_AT(s)                                                          \
    (MISMATCH != 0 && ((s) == MISMATCH || (s) > MISMATCH && KEEPS(DIGEST_HAS_HISTORY)))
#define RECORD(j, s) (KIND(j, s) + ((j) == N - 1 && DIFFERS_AT(s) -> 100 : 0))
#define IN_CELL(s)   (KIND(me, s) == A_LARGE_ONE || KIND(me, s) == A_SHOWN_ONE)
#define IS_ALONE(s)  (KIND(me, s) == ONE_ALONE)

/* As seen by a member that has arrived itself. */
#define HAS_ARRIVED(j, s) ((j) == me || WORD(j, s).seq == s)
#define IS_UNLIKE(j, s)   (WORD(j, s).seq == s && WORD(j, s).record != RECORD(me, s))

#define SEAL(s) seal[(s) % D]
#define IS_OF(s) (SEAL(s).seq == s || !KEEPS(SEAL_NAMES_ITS_CALL) && SEAL(s).seq != 0)
#define SEALED(s, verdict) (IS_OF(s) && SEAL(s).state == verdict)

#define OF_ALL(is, s)  (is(0, s) && is(1, s) && is(N - 1, s))
#define OF_SOME(is, s) (is(0, s) || is(1, s) || is(N - 1, s))

/* The words tell how far their owners are, the counters tell it better. */
#define BOUND(j, k, s) (slot[(j) * D + (k)].bound + D >= s)
#define HAS_READ(j, s)                                                         \
    (completed[j] + D >= s && (KEEPS(DONE_HAS_A_COUNTER) || j == me) ||        \
     BOUND(j, 0, s) || BOUND(j, D - 1, s))
#define ROOM(s)                                                                \
    (s <= D || !KEEPS(WRITE_WAITS_FOR_ROOM) || OF_ALL(HAS_READ, s) ||          \
     !KEEPS(ROOM_ASKS_ALL) && HAS_READ(me, s))

#define POLLS_ABORT (ABORTED && KEEPS(WAIT_POLLS_ABORT))
#define DEADLINE    (DEADLINES && KEEPS(WAIT_HAS_DEADLINE))
#define GIVES_UP    (POLLS_ABORT || DEADLINE)

/* ---- arrive ------------------------------------------------------------ */

inline lane_write()
{
    d_step { WORD(me, s).record = RECORD(me, s); WORD(me, s).payload = s }
}

inline flush(m)
{
    if
    :: buffer[m].seq != 0 ->
       assert(WORD(m, buffer[m].seq).seq <= buffer[m].seq);
       WORD(m, buffer[m].seq).bound = buffer[m].bound;
       WORD(m, buffer[m].seq).seq = buffer[m].seq;
       buffer[m].bound = 0;
       buffer[m].seq = 0
    :: else
    fi
}

inline lane_arrive()
{
    d_step {
        flush(me); /* stores stay in order */
        buffer[me].seq = s;
        buffer[me].bound = completed[me];
        state[s] = (KIND(me, s) == A_LARGE_ONE -> ENTERS :
                    (IS_ALONE(s) -> NEEDS_NOBODY : ARRIVED))
    }
}

/* ---- commit and revoke ------------------------------------------------- */

/* All are there: leaves state == GOOD, or FAILED when that was found too late.
 * Fence, look at the seal and decision are one step: a flush could have come
 * later just as well, and a seal that is up stays up until it is decided. */
inline lane_commit()
{
    d_step {
        if
        :: KEEPS(FENCE_BEFORE_SEAL) -> flush(me)
        :: else
        fi;
        state[s] = GOOD;
        if
        :: !KEEPS(ALL_THERE_READS_SEAL)
        :: else ->
           if
           :: SEALED(s, SEALING) -> SEAL(s).state = COMMITTED
           :: SEALED(s, REVOKED) -> state[s] = FAILED
           :: else
           fi
        fi
    }
}

inline seal_open()
{
    d_step {
        if
        :: IS_OF(s)
        :: else -> SEAL(s).seq = s; SEAL(s).state = SEALING
        fi
    }
}

inline seal_look()
{
    d_step {
        flush(me);
        verdict = (OF_ALL(HAS_ARRIVED, s) && KEEPS(SEAL_LOOKS_AGAIN) -> COMMITTED : REVOKED)
    }
}

/* As the code does: whatever is found instead of the open seal counts. */
inline seal_decide()
{
    d_step {
        if
        :: SEALED(s, SEALING) || !KEEPS(DECIDED_ONCE) -> SEAL(s).state = verdict
        :: else
        fi;
        if
        :: SEAL(s).state == REVOKED -> state[s] = FAILED
        :: else
        fi;
        verdict = 0
    }
}

/* Makes it impossible that s commits, unless it has: leaves state == FAILED, or
 * as it was. */
inline lane_seal()
{
    if
    :: KEEPS(SEAL_BEFORE_LOOK) -> seal_open(); seal_look()
    :: else -> seal_look(); seal_open()
    fi;
    seal_decide()
}

/* ---- complete ---------------------------------------------------------- */

/* Every payload is that of this operation, up to here. */
inline lane_read()
{
    d_step {
        for (j : 0 .. N - 1) {
            assert(HAS_ARRIVED(j, s) && WORD(j, s).payload == s)
        }
        j = 0
    }
}

inline lane_done()
{
    d_step {
        over[s] = 1;
        if
        :: KEEPS(DONE_IS_A_PREFIX) ->
           do
           :: completed[me] < OPS && over[completed[me] + 1] -> completed[me]++
           :: else -> break
           od
        :: else -> completed[me] = s
        fi
    }
}

/* ---- one call ---------------------------------------------------------- */

inline comm_abort(reason)
{
    d_step {
        if
        :: ABORTED
        :: else -> abort_why = reason
        fi
    }
}

/* Fails with what revoked the comm. The member that revoked the operation writes the record
 * right after; it may be dead or slow. */
inline call_fail()
{
    if
    :: atomic { why != WHY_NOTHING && KEEPS(FAILURE_ABORTS_COMM) -> comm_abort(why) }
    :: why != WHY_NOTHING && !KEEPS(FAILURE_ABORTS_COMM)
    :: why == WHY_NOTHING && ABORTED
    :: atomic { why == WHY_NOTHING && (g_died || DEADLINES) -> comm_abort(WHY_REVOKED) }
    fi;
    atomic { why = WHY_NOTHING; call_return() }
}

/* Agreement: whoever returns from an operation returns the same. Without a fault
 * all succeed; a mismatch is called one. After a failure has been returned
 * anywhere, nothing that is begun succeeds. */
inline call_return()
{
    d_step {
        assert(state[s] == GOOD || state[s] == FAILED);
        g_mismatch = MISMATCH != 0 && s >= MISMATCH;
        if
        :: IS_ALONE(s)
        :: else ->
           for (j : 0 .. N - 1) {
               assert(g_result[s * N + j] == 0 || g_result[s * N + j] == state[s])
           }
           j = 0;
           assert(state[s] == FAILED || !g_mismatch);
           g_result[s * N + me] = state[s]
        fi;
        assert(state[s] == GOOD || FAULTS);
        assert(state[s] == GOOD || DEATHS || DEADLINES || STRANGER || abort_why == WHY_MISMATCH);
        assert(state[s] == FAILED || !g_late[s]);
        if
        :: state[s] == FAILED -> g_failed = 1
        :: else
        fi;
        do
        :: returned < begun && (state[returned + 1] == GOOD || state[returned + 1] == FAILED) ->
           returned++
        :: else -> break
        od;
        s = 0
    }
}

inline call_begin()
{
    d_step {
        begun++;
        s = begun;
        g_late[s] = g_failed;
        state[s] = (ABORTED && KEEPS(ENTRY_CHECKS_ABORT) -> FAILED : WANTS)
    }
}

inline call_succeed()
{
    if
    :: IN_CELL(s) ->
       if
       :: KEEPS(LARGE_IS_COMPLETED) && KEEPS(COMPLETED_AT_THE_END) -> lane_done()
       :: else
       fi
    :: IS_ALONE(s) -> lane_done()
    :: else ->
       if
       :: KEEPS(DONE_AFTER_READ) -> lane_read(); lane_done()
       :: else -> lane_done(); lane_read()
       fi
    fi;
    atomic { state[s] = GOOD; call_return() }
}

#define UNDECIDED(x)                                                           \
    (!OF_ALL(HAS_ARRIVED, x) && !SEALED(x, COMMITTED) && !OF_SOME(IS_UNLIKE, x))
#define ALL_THERE(x)                                                           \
    ((OF_ALL(HAS_ARRIVED, x) || !KEEPS(SUCCESS_NEEDS_ALL)) &&                  \
     (!OF_SOME(IS_UNLIKE, x) || !KEEPS(RECORDS_ARE_COMPARED)))

/* What the rank's thread can do for its operation x; operations arrive in order. */
#define STEPS_OF(x)                                                            \
    :: atomic { state[x] == WANTS && state[(x) - 1] != WANTS && ROOM(x) -> s = x }; \
       if                                                                      \
       :: KEEPS(PAYLOAD_BEFORE_ARRIVE) -> lane_write(); lane_arrive()          \
       :: else -> lane_arrive(); lane_write()                                  \
       fi;                                                                     \
       s = 0                                                                   \
    :: atomic { state[x] == WANTS && GIVES_UP -> s = x; state[x] = FAILED;     \
                why = (ABORTED -> WHY_NOTHING : WHY_LATE) };                   \
       if                                                                      \
       :: KEEPS(SEAL_AFTER_OWN_ARRIVAL)                                        \
       :: else -> seal_open(); d_step { verdict = REVOKED; seal_decide() }     \
       fi;                                                                     \
       call_fail()                                                             \
    :: atomic { state[x] == ARRIVED && ALL_THERE(x) -> s = x; lane_commit() }; \
       if                                                                      \
       :: state[s] == GOOD && !IN_CELL(s) -> call_succeed()                    \
       :: atomic { state[s] == GOOD && IN_CELL(s) -> state[s] = ENTERS; s = 0 }\
       :: state[s] == FAILED -> call_fail()                                    \
       fi                                                                      \
    :: atomic { state[x] == NEEDS_NOBODY -> s = x };                           \
       call_succeed()                                                          \
    :: atomic { state[x] == ARRIVED && SEALED(x, REVOKED) ->                   \
                s = x; state[x] = FAILED };                                    \
       call_fail()                                                             \
    :: atomic { state[x] == ARRIVED && OF_SOME(IS_UNLIKE, x) &&\
                KEEPS(RECORDS_ARE_COMPARED) -> s = x; state[x] = FAILED; why = WHY_MISMATCH }; \
       call_fail()                                                             \
    :: atomic { state[x] == ARRIVED && UNDECIDED(x) && GIVES_UP -> s = x; \
                why = (ABORTED -> WHY_NOTHING : WHY_LATE) };                   \
       if                                                                      \
       :: KEEPS(GIVING_UP_SEALS) -> lane_seal()                                \
       :: else -> state[s] = FAILED                                            \
       fi;                                                                     \
       if                                                                      \
       :: state[s] == FAILED -> call_fail()                                    \
       :: else -> atomic { s = 0; why = WHY_NOTHING }                          \
       fi

#if LARGE || SHOWN
#include "lane_large.pml"
#endif

proctype member(byte me)
{
    byte begun, returned, s, j, why, verdict;
    byte state[OPS + 3];
    bit over[OPS + 3];
    bit g_late[OPS + 3];

    {
        do
        :: returned == OPS || ABSENT && me == N - 1 && begun == returned -> break
        :: atomic { begun < OPS && begun < returned + OPEN -> call_begin() };
           if
           :: state[s] == FAILED -> call_fail()
           :: else -> s = 0
           fi
        STEPS_OF(returned + 1)
#if LARGE || SHOWN
        STEPS_IN_CELL(returned + 1)
#endif
#if OPEN > 1
        STEPS_OF(returned + 2)
#if LARGE || SHOWN
        STEPS_IN_CELL(returned + 2)
#endif
#endif
        od
    } unless {
        dead[me]
    };
    skip;
    d_step { /* old values of variables would only multiply the states */
        for (j : 0 .. OPS + 2) {
            state[j] = 0;
            over[j] = 0;
            g_late[j] = 0
        }
        begun = 0; returned = 0; s = 0; j = 0; why = 0; verdict = 0;
        g_gone[me] = 1
    }
}

/* ---- the world around -------------------------------------------------- */

proctype store_buffers()
{
end:
    do
    :: d_step { buffer[0].seq != 0 -> flush(0) }
    :: d_step { buffer[1].seq != 0 -> flush(1) }
    :: d_step { buffer[N - 1].seq != 0 -> flush(N - 1) }
    od
}

proctype fate()
{
    if
    :: d_step { dead[0] = 1; g_died = 1 };
       comm_abort(WHY_DEAD)
    :: skip
    fi
}

proctype stranger()
{
    if
    :: comm_abort(WHY_REVOKED)
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
        run store_buffers();
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
