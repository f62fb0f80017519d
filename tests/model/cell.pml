/* The life of a cell, as in src/core/protocol/cell.c: enter, arrive, revoke, leave, and
 * the comm's abort word. Included by eager.pml, staged.pml, direct.pml and pull.pml,
 * which add what happens between arrive and leave and define, before the include,
 * COMMITTED(w), BLOCK_FIELDS and block_reset(b, i). docs/protocol.md says what
 * each step is for.
 *
 * One step is one access to memory that others may change meanwhile, with the
 * local work around it: a compare-and-swap loop is one step, a look into a
 * bucket under its lock is one step, a poll is a blocking guard. So the state
 * graph has no cycle, and "every surviving rank returns" is the absence of
 * invalid end states. A deadline is a choice that is always open. Names in g_
 * are ghosts: checks read them, the protocol does not. */

#ifndef N
#define N 2             /* ranks of the group: 2 or 3 */
#endif
#ifndef ROUNDS
#define ROUNDS 2        /* consecutive operations of the first caller; others have one */
#endif
#ifndef CALLERS
#define CALLERS 1       /* operations a rank has open at once */
#endif
#ifndef SAME_KEY
#define SAME_KEY 1      /* 1: the key comes again in each round */
#endif
#ifndef SAME_RECORD
#define SAME_RECORD 1   /* 1: so does the record */
#endif
#ifndef WAYS
#define WAYS 1          /* ways of the one bucket: 1 or 2 */
#endif
#ifndef BLOCKS
#define BLOCKS 1        /* blocks in the pool of each rank: 1 or 2 */
#endif
#ifndef DEATHS
#define DEATHS 0        /* so many ranks may die, each anywhere */
#endif
#ifndef DEADLINES
#define DEADLINES 0     /* 1: a deadline may fire in any wait; 2: only in leave */
#endif
#ifndef ABSENT
#define ABSENT 0        /* 1: the last rank may stop calling, alive */
#endif
#ifndef MISMATCH
#define MISMATCH 0      /* so many ranks, from the last, ask for something else */
#endif
#ifndef STRANGER
#define STRANGER 0      /* 1: something else may revoke the comm at any time */
#endif
#ifndef MESSAGE
#define MESSAGE 0       /* 1: rank 0 sends to rank 1, and leaves as soon as it has arrived */
#endif
#ifndef COARSE
#define COARSE 0        /* 1: what stands TOGETHER is one step, to save states */
#endif

#if COARSE
#define TOGETHER atomic
#else
#define TOGETHER
#endif

#define FAULTS (DEATHS || DEADLINES || MISMATCH || STRANGER)
#define LATE   (DEADLINES == 1)
#define OPS    (CALLERS * ROUNDS)
#define NONE   255

/* The rules. run.sh drops each in turn and demands that an error is found. */
#include "rules.pml"

#define REVOKE_CHECKS_COMMIT    1
#define REVOKE_IS_ONE_STEP      2
#define ABORT_GOES_BY_THE_WORD  3
#define ARRIVE_CHECKS_REVOKED   4
#define JOIN_CHECKS_OWN_MARK    5
#define OWN_MARK_BEFORE_COMPARE 6
#define MISMATCH_REVOKES        7
#define MISMATCH_IN_ONE_STEP    8
#define FAILURE_ABORTS_COMM     9
#define CLAIMED_IS_ABORTED      10
#define LOCK_POLLS_ABORT        11
#define WAIT_POLLS_ABORT        12
#define WAIT_HAS_DEADLINE       13
#define LEFT_IS_ONE_STEP        14
#define LEAVE_KEEPS_SUCCESS     15
#define LEAVE_ABORTS_WHEN_LATE  16
#define FREE_UNDER_LOCK         17
#define ENTER_UNDER_LOCK        18
#define RESET_AT_CREATE         19

#define PAYLOAD_BEFORE_ARRIVE   20
#define READ_BEFORE_LEAVE       21

#define PUB_WAITS_FOR_GOT       30
#define RED_WAITS_FOR_PUB       31
#define GOT_WAITS_FOR_RED       32
#define DATA_BEFORE_COUNTER     33
#define FINISH_AFTER_RED        34
#define FINISH_CHECKS_REVOKED   35
#define SUCCESS_AFTER_COMMIT    36
#define FINISH_AFTER_PUB        37
#define GOT_WAITS_FOR_PUB       38
#define RED_WAITS_FOR_GOT       25
#define SHOWN_BEFORE_COUNTER    26
#define FINISH_AFTER_READS      27
#define FINISH_KNOWS_WINDOWS    28

#define TOUCH_AFTER_ALL_ARRIVED 40
#define CLAIM_BEFORE_TOUCH      41
#define CLAIM_CHECKS_REVOKED    42
#define REVOKER_DRAINS          43
#define OBSERVER_DRAINS         44
#define COUNT_AFTER_TOUCH       45

#define READ_AFTER_ALL_ARRIVED  50
#define COUNT_AFTER_READ        51
#define IN_PLACE_SHOWS_A_COPY   52
#define NOTHING_READ_OF_THE_DEAD 53

/* The comm's abort word. */
#define CLEAR   0
#define CLAIMED 1
#define SET     2

#define WHY_NOTHING  0
#define WHY_LATE     1
#define WHY_DEAD     2
#define WHY_MISMATCH 3
#define WHY_REVOKED  4

/* Where a caller stands. */
#define TRY     1
#define LOCKED  2
#define MISSING 3       /* locked, no such cell */
#define DIFFERS 4       /* locked, the cell's record is another */
#define BUSY    5
#define ENTERED 6
#define ARRIVED 7
#define GOOD    8       /* committed */
#define FAILED  9

typedef Cell {
    bit used;
    byte key;
    byte record;
    byte blk;
    byte arrived, touching, finished, left; /* the word; `touching` is its active count */
    bit revoked, mismatch;                  /* the word's flags */
    byte second;                            /* the record that differs */
    bit g_inside[N];                        /* between enter and left+1 */
}

typedef Block {
    bit taken;
    bit here[N];        /* member[i].arrived */
    byte g_op;          /* whose block it is: op + 1 */
    BLOCK_FIELDS
}

Cell cell[WAYS];
Block block[N * BLOCKS]; /* block b is of the pool of rank b / BLOCKS */
byte lock_word;          /* 0, or the holder's rank + 1 */
byte abort_word;
byte abort_why;

bit dead[N];
bit g_died;
bit g_gone[N * CALLERS];
byte g_result[OPS * N];  /* 0, GOOD or FAILED */

#define ABORTED   (abort_word == SET || KEEPS(CLAIMED_IS_ABORTED) && abort_word == CLAIMED)
#define MINE      block[cell[way].blk]
#define LAST      (caller == 0 -> ROUNDS : 1)

/* ---- comm: the abort word ---------------------------------------------- */

inline comm_abort(reason)
{
    if
    :: TOGETHER {
           atomic { abort_word == CLEAR -> abort_word = CLAIMED };
           abort_why = reason;
           abort_word = SET
       }
    :: abort_word != CLEAR
    fi
}

/* The record is there once the word is SET. The wait for it is bounded, and given
 * up where the claimer may be dead or slow. */
inline comm_read_abort(reason)
{
    if
    :: atomic { abort_word == SET -> reason = abort_why }
    :: atomic { abort_word == CLAIMED && (g_died || DEADLINES) -> reason = WHY_REVOKED }
    fi
}

/* ---- the bucket -------------------------------------------------------- */

/* Leaves state == LOCKED, or FAILED when it was given up. */
inline bucket_lock(may_fire)
{
    if
    :: atomic { lock_word == 0 -> lock_word = me + 1; state = LOCKED }
    :: atomic { KEEPS(LOCK_POLLS_ABORT) && ABORTED -> state = FAILED }
    :: atomic { may_fire -> state = FAILED; why = WHY_LATE }
    fi
}

inline bucket_unlock()
{
    d_step {
        assert(lock_word == me + 1 || !KEEPS(ENTER_UNDER_LOCK));
        lock_word = 0
    }
}

inline bucket_find()
{
    way = NONE;
    for (i : 0 .. WAYS - 1) {
        if
        :: cell[i].used && cell[i].key == key -> way = i
        :: else
        fi
    }
    i = 0
}

/* A free way and a free block of the own pool, or NONE. */
inline bucket_find_free()
{
    for (i : 0 .. WAYS - 1) {
        if
        :: !cell[i].used -> way = i
        :: else
        fi
    }
    for (i : 0 .. BLOCKS - 1) {
        if
        :: !block[me * BLOCKS + i].taken -> fresh = me * BLOCKS + i
        :: else
        fi
    }
    i = 0
}

/* ---- enter ------------------------------------------------------------- */

/* An operation of this key in which this rank has arrived already is an older
 * one that its last leaver has yet to remove. */
inline cell_look_up()
{
    d_step {
        bucket_find();
        if
        :: way == NONE ->
           bucket_find_free();
           state = (way == NONE || fresh == NONE -> BUSY : MISSING)
        :: else ->
           if
           :: KEEPS(JOIN_CHECKS_OWN_MARK) && MINE.here[me] &&
              (KEEPS(OWN_MARK_BEFORE_COMPARE) || cell[way].record == record) ->
              state = BUSY
           :: else ->
              cell[way].g_inside[me] = 1;
              state = (cell[way].record == record -> ENTERED : DIFFERS)
           fi
        fi
    }
}

/* The block is whole before the cell can be found. */
inline cell_create()
{
    d_step {
        assert(!block[fresh].taken);
        block[fresh].taken = 1;
        block[fresh].g_op = op + 1;
        for (i : 0 .. N - 1) {
            block[fresh].here[i] = 0;
            if
            :: KEEPS(RESET_AT_CREATE) -> block_reset(fresh, i)
            :: else
            fi
        }
        i = 0
    };
    d_step {
        assert(!cell[way].used);
        cell[way].key = key;
        cell[way].record = record;
        cell[way].blk = fresh;
        cell[way].arrived = 0;
        cell[way].touching = 0;
        cell[way].finished = 0;
        cell[way].left = 0;
        cell[way].g_inside[me] = 1;
        cell[way].used = 1;
        state = ENTERED;
        fresh = NONE
    }
}

/* The first reason stays: MISMATCH goes in only together with REVOKED. */
inline revoke_mismatch()
{
    if
    :: KEEPS(MISMATCH_IN_ONE_STEP) -> cell[way].second = record
    :: else -> cell[way].revoked = 1
    fi;
    d_step {
        if
        :: !cell[way].revoked || !KEEPS(MISMATCH_IN_ONE_STEP) ->
           cell[way].revoked = 1;
           cell[way].mismatch = 1
        :: else
        fi;
        state = FAILED
    }
}

#define OPEN(w) (cell[w].used && cell[w].key == key && !block[cell[w].blk].here[me])
#define OLD(w)  (cell[w].used && cell[w].key == key && block[cell[w].blk].here[me])

/* The poll of a caller that was told BUSY: goes on when a new try would. */
inline busy_wait()
{
    if
    :: atomic { OPEN(0) || OPEN(WAYS - 1) -> state = TRY }
    :: atomic {
           !OLD(0) && !OLD(WAYS - 1) && !(cell[0].used && cell[WAYS - 1].used) &&
           !(block[me * BLOCKS].taken && block[me * BLOCKS + BLOCKS - 1].taken) ->
           state = TRY
       }
    :: atomic { ABORTED -> state = FAILED }
    :: atomic { LATE -> state = FAILED; why = WHY_LATE }
    fi
}

/* Leaves state == ENTERED with `way`, or FAILED. Nothing is held while it waits. */
inline cell_enter()
{
    do
    :: atomic { state == TRY && ABORTED -> state = FAILED }
    :: state == TRY && !ABORTED ->
       TOGETHER {
           atomic {
               if
               :: KEEPS(ENTER_UNDER_LOCK) -> bucket_lock(LATE)
               :: !KEEPS(ENTER_UNDER_LOCK) -> state = LOCKED
               fi;
               if
               :: state == LOCKED -> cell_look_up()
               :: else -> break
               fi
           };
           if
           :: state == MISSING -> cell_create()
           :: state == DIFFERS && KEEPS(MISMATCH_REVOKES) -> revoke_mismatch()
           :: atomic { state == DIFFERS && !KEEPS(MISMATCH_REVOKES) -> state = FAILED }
           :: else
           fi;
           bucket_unlock()
       }
    :: atomic { state == BUSY -> way = NONE; fresh = NONE; busy_wait() }
    :: atomic { state == ENTERED || state == FAILED -> break }
    od
}

/* ---- arrive, revoke ---------------------------------------------------- */

inline cell_arrive()
{
    MINE.here[me] = 1;
    d_step {
        if
        :: cell[way].revoked && KEEPS(ARRIVE_CHECKS_REVOKED) -> state = FAILED
        :: else ->
           assert(cell[way].used && cell[way].arrived < N);
           cell[way].arrived++;
           state = ARRIVED
        fi
    }
}

/* Asks for failure. The word decides: after the commit point nothing changes,
 * and the caller goes on. */
inline cell_revoke()
{
    d_step {
        if
        :: COMMITTED(way) && KEEPS(REVOKE_CHECKS_COMMIT)
        :: else -> cell[way].revoked = 1; revoker = 1
        fi
    }
}

#define UNDECIDED                                                              \
    (!cell[way].revoked && (!COMMITTED(way) || !KEEPS(REVOKE_CHECKS_COMMIT)))
#define POLLS_ABORT (ABORTED && KEEPS(WAIT_POLLS_ABORT))
#define DEADLINE    (LATE && KEEPS(WAIT_HAS_DEADLINE))

/* How a wait of an arrived caller ends early: by the word, which an abort or a
 * deadline asks to be REVOKED. The last two are mutants. */
#define GIVING_UP                                                              \
    :: atomic { cell[way].revoked && KEEPS(ABORT_GOES_BY_THE_WORD) -> state = FAILED; break } \
    :: atomic { POLLS_ABORT && UNDECIDED -> cell_revoke() }                    \
    :: atomic { DEADLINE && UNDECIDED -> why = WHY_LATE; cell_revoke() }       \
    :: atomic { ABORTED && !KEEPS(ABORT_GOES_BY_THE_WORD) -> state = FAILED; break } \
    :: DEADLINE && !COMMITTED(way) && !KEEPS(REVOKE_IS_ONE_STEP) ->            \
       atomic { cell[way].revoked = 1; state = FAILED; break }

/* ---- leave ------------------------------------------------------------- */

inline cell_free()
{
    d_step {
        assert(cell[way].used && cell[way].left == N);
        for (i : 0 .. N - 1) {
            assert(!cell[way].g_inside[i])
        }
        i = 0;
        assert(MINE.taken);
        MINE.taken = 0
    };
    cell[way].used = 0
}

/* The operation has succeeded, whatever becomes of the lock from here on. */
inline cell_leave()
{
    if
    :: KEEPS(LEFT_IS_ONE_STEP)
    :: atomic { !KEEPS(LEFT_IS_ONE_STEP) -> fresh = cell[way].left }
    fi;
    d_step {
        assert(cell[way].used && cell[way].left < N);
        cell[way].left = (KEEPS(LEFT_IS_ONE_STEP) -> cell[way].left : fresh) + 1;
        cell[way].g_inside[me] = 0;
        last = (cell[way].left == N);
        fresh = NONE
    };
    if
    :: !last
    :: atomic { last && KEEPS(FREE_UNDER_LOCK) -> last = 0 };
       TOGETHER {
           bucket_lock(DEADLINES);
           if
           :: state == LOCKED -> cell_free(); bucket_unlock()
           :: state == FAILED && KEEPS(LEAVE_ABORTS_WHEN_LATE) -> comm_abort(WHY_LATE)
           :: else
           fi
       };
       state = (state == LOCKED || KEEPS(LEAVE_KEEPS_SUCCESS) -> GOOD : FAILED)
    :: atomic { last && !KEEPS(FREE_UNDER_LOCK) -> last = 0 };
       cell_free()
    fi
}

/* ---- one call ---------------------------------------------------------- */

#define LOCALS                                                                 \
    byte round, state, why, op, key, record, i;                                \
    byte way = NONE;                                                           \
    byte fresh = NONE;                                                         \
    bit last, revoker

/* Old values of variables would only multiply the states. */
#define FORGET_CALL                                                            \
    state = 0; why = 0; op = 0; key = 0; record = 0; i = 0;                    \
    way = NONE; fresh = NONE; last = 0; revoker = 0

inline call_begin()
{
    d_step {
        state = TRY;
        op = caller * ROUNDS + round;
        key = caller * ROUNDS + (SAME_KEY -> 0 : round) + 1;
        record = (SAME_RECORD -> 0 : op) + 1 +
                 (me + MISMATCH >= N && round == 0 -> 100 : 0)
    }
}

/* No failure is returned before the comm is revoked: the next call of this rank
 * may have the key of the operation its peers are still in. */
inline call_fail()
{
    if
    :: atomic { way != NONE && cell[way].mismatch -> why = WHY_MISMATCH }
    :: (way == NONE || !cell[way].mismatch) && why == WHY_NOTHING && ABORTED ->
       comm_read_abort(why)
    :: atomic { (way == NONE || !cell[way].mismatch) && why == WHY_NOTHING && !ABORTED ->
                why = WHY_REVOKED }
    :: (way == NONE || !cell[way].mismatch) && why != WHY_NOTHING
    fi;
    if
    :: KEEPS(FAILURE_ABORTS_COMM) -> comm_abort(why)
    :: !KEEPS(FAILURE_ABORTS_COMM)
    fi
}

/* Agreement: whoever returns from an operation returns the same; a message may fail
 * at its receiver alone. Without a fault all succeed; with a mismatch and no other
 * fault all that fail say so, and nobody receives. */
inline call_return()
{
    d_step {
        assert(state == GOOD || state == FAILED);
        for (i : 0 .. N - 1) {
            assert(g_result[op * N + i] == 0 || g_result[op * N + i] == state ||
                   MESSAGE && i != me && (state == GOOD) == (me == 0))
        }
        assert(state == GOOD || FAULTS);
        assert(state == FAILED || !MISMATCH || MESSAGE && me == 0);
        assert(!MISMATCH || DEATHS || DEADLINES || STRANGER || state == GOOD ||
               why == WHY_MISMATCH);
        g_result[op * N + me] = state;
        round++;
        FORGET_CALL
    }
}

/* ---- the world around -------------------------------------------------- */

/* A death is known only when the dead can write no more: `dead` cuts a rank off
 * before its next step, and the abort word is written some time after that. Ranks
 * play the same part unless they differ on purpose, so rank 0 stands for all. */
proctype fate()
{
    byte n;

    do
    :: n < DEATHS ->
       if
       :: d_step { dead[0] = 1; g_died = 1; n++ }
       :: d_step { DEATHS > 1 || MISMATCH -> dead[N - 1] = 1; g_died = 1; n++ }
       :: n++
       fi
    :: g_died && abort_word == CLEAR -> comm_abort(WHY_DEAD)
    :: n == DEATHS && (abort_word != CLEAR || !g_died) -> break
    od
}

proctype stranger()
{
    if
    :: comm_abort(WHY_REVOKED)
    :: skip
    fi
}

/* Waits until every caller has come back or is dead. A world without faults
 * leaves an empty table and full pools behind. */
inline world_run()
{
    byte r, c;

    atomic {
        choose_rules();
        for (r : 0 .. N - 1) {
            for (c : 0 .. CALLERS - 1) {
                run rank(r, c)
            }
        }
        if
        :: DEATHS -> run fate()
        :: else
        fi;
        if
        :: STRANGER -> run stranger()
        :: else
        fi;
        c = 0
    };
    for (r : 0 .. N * CALLERS - 1) {
        g_gone[r]
    }
    if
    :: FAULTS
    :: else ->
       for (r : 0 .. WAYS - 1) {
           assert(!cell[r].used)
       }
       for (r : 0 .. N * BLOCKS - 1) {
           assert(!block[r].taken)
       }
       assert(lock_word == 0)
    fi
}
