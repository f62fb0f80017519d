/* Calls on GPUs, as in src/ops/cuda/kernels/device.cuh, small.cuh, large.cuh and ragged.cuh: how
 * the kernels of a group meet, touch each other's buffers, fail and let go. One CTA for
 * each rank, since CTA k meets only CTAs k; mode.pml has several.
 *
 * One step is one access to memory that others may change meanwhile; a poll is a blocking
 * guard, so "every surviving rank returns" is the absence of invalid end states. A
 * deadline is a choice that is always open. What the host does in between calls is left
 * out: calls are on the stream already when an earlier one fails, which is the worst case.
 * The limit of a drain is not modelled, but for peers that are dead: the living let go in
 * time. Names in g_ are ghosts. run.sh sets the options below when it runs the checker. */

#ifndef N
#define N 2             /* ranks: 2 or 3 */
#endif
#ifndef CALLS
#define CALLS 2
#endif

byte kinds;             /* which kind all calls are; 0: SMALL, LARGE or RAGGED each */
byte deadlines;         /* 1: one may fire in any wait of the first call; 2: of any, and
                         * the hosts pass failures on */
bit deaths;             /* one rank may die anywhere */
bit absent;             /* the last rank may never call, alive */
bit stranger;           /* something else may revoke the comm at any time */
bit direct_only;        /* all buffers are mapped */
bit mismatch;           /* the last rank asks for something else in its first call */

#include "rules.pml"

#define ENTRY_CHECKS_ERROR      1
#define GIVING_UP_TAKES_CLAIM   2
#define CLAIM_IS_LOOKED_AT      3
#define WHO_CAME_IS_WAITED_FOR  4
#define EXIT_AFTER_LAST_TOUCH   5
#define FAR_AHEAD_SETS_ERROR    6
#define FAR_AHEAD_IS_SEEN       7
#define MEETING_AFTER_TOUCH     8
#define MEETING_AFTER_STAGING   9
#define ALL_GO_ONE_WAY          10
#define RECORDS_ARE_COMPARED    11
#define FAILED_SEND_NOTHING     12
#define TWO_SLOTS               13
#define WAIT_POLLS_ABORT        14
#define WAIT_HAS_DEADLINE       15

#define SMALL  1
#define LARGE  2
#define RAGGED 3
#define PERSON 4        /* a person's kernel, between the meetings of kernel.cuh */

#define GOOD   1
#define FAILED 2

#define GIVEN_UP  255
#define FAR_AHEAD 100
#define PAIR(a, b) ((a) * N + (b)) /* what `b` writes for `a` */
/* The others, one after the other, in `p`. */
#define FIRST (me == 0)
#define NEXT  (p + 1 + (p + 1 == me))

typedef Entry {
    byte count;         /* the tag: calls between the two, and the record's hash */
    bit hash;
    bit direct;
    byte g_call;        /* whose buffers the addresses mean: call + 1 */
}

typedef Line {
    byte turn;
    bit hash;
    byte g_call;        /* the data */
}

bit error[N];           /* of the table; not FINE */
bit abort_word[N];      /* of the report, by the host */
bit reported[N];
Entry entry[N * N];
byte claim[N * N];
byte come[N * N];       /* `sync` of the table */
byte said[N * N];       /* the record: which call, and ... */
bit said_hash[N * N];
Line slot[2 * N * N];
byte stage[N];          /* call + 1: whose data it holds */

bit comm_aborted;
bit dead[N];
byte kind[CALLS];
byte lent[N];           /* call + 1: the buffers are that call's; 0: the owner's again */
byte g_result[CALLS * N];
bit g_gone[N];

#define FAULTS     (deadlines || deaths || absent || stranger || mismatch)
#define HASH(call) (mismatch && me == N - 1 && (call) == 0)
#define TIME_UP    (deadlines > (call > 0) && KEEPS(WAIT_HAS_DEADLINE))
#define DIFFERS    (said[PAIR(me, p)] == call + 1 && said_hash[PAIR(me, p)] != HASH(call))

/* ---- failure ------------------------------------------------------------------------ */

/* The first failure of a rank: its own word, the report, the others' words. */
inline fail()
{
    atomic { bad = 1; first = !error[me]; error[me] = 1; q = (first -> FIRST : N) };
    do
    :: d_step { q < N && first -> reported[me] = 1; first = 0 }
    :: d_step {
           q < N && !first ->
           error[q] = 1;
           q = q + 1 + (q + 1 == me)
       }
    :: atomic { q >= N -> q = 0; break }
    od
}

/* spin(): until `ready`; leaves `bad`. */
#define WAIT(ready)                                                                      \
    do                                                                                   \
    :: atomic { ready -> break }                                                         \
    :: atomic { error[me] -> bad = 1; break }                                            \
    :: atomic { abort_word[me] && KEEPS(WAIT_POLLS_ABORT) ->                             \
                error[me] = 1; bad = 1; break }                                          \
    :: atomic { TIME_UP || DIFFERS -> skip };              \
       fail();                                                                           \
       break                                                                             \
    od

/* ---- small calls -------------------------------------------------------------------- */

#define SLOT(a, b) slot[2 * PAIR(a, b) + (KEEPS(TWO_SLOTS) -> turn % 2 : 0)]

/* Says what this rank asks for; in the model only where somebody may ask otherwise. */
inline announce()
{
    if
    :: d_step { mismatch -> said[PAIR(p, me)] = call + 1; said_hash[PAIR(p, me)] = HASH(call) }
    :: else
    fi
}

inline small_send()
{
    p = FIRST;
    do
    :: atomic { p < N -> announce() };
       d_step {
           SLOT(p, me).turn = turn;
           SLOT(p, me).hash = HASH(call);
           SLOT(p, me).g_call = call + 1;
           p = NEXT
       }
    :: atomic { p >= N -> p = 0; break }
    od
}

#define LINE_THERE (SLOT(me, p).turn == turn && SLOT(me, p).hash == HASH(call))

inline small_take()
{
    p = FIRST;
    do
    :: p < N && !failed ->
       WAIT(LINE_THERE);
       atomic {
           g_wrong = g_wrong || !bad && SLOT(me, p).g_call != call + 1;
           failed = bad; bad = 0; p = NEXT
       }
    :: atomic { p >= N || failed -> p = 0; break }
    od
}

inline small()
{
    atomic { turn = slots + 1; failed = error[me] && KEEPS(ENTRY_CHECKS_ERROR) };
    if
    :: !failed || !KEEPS(FAILED_SEND_NOTHING) -> small_send()
    :: else
    fi;
    small_take();
    atomic { slots = (failed -> slots : turn); turn = 0 }
}

/* ---- large calls -------------------------------------------------------------------- */

/* Lines and claim: what lets others touch this rank's buffers. */
inline tell()
{
    p = FIRST;
    do
    :: d_step {
           p < N ->
           entry[PAIR(p, me)].count = entered + 1;
           entry[PAIR(p, me)].hash = HASH(call);
           entry[PAIR(p, me)].direct = direct;
           entry[PAIR(p, me)].g_call = call + 1
       };
       d_step {
           claimed[p] = claim[PAIR(p, me)] != GIVEN_UP;
           claim[PAIR(p, me)] = entered + 1
       };
       atomic { announce(); p = NEXT }
    :: atomic { p >= N -> p = 0; break }
    od
}

/* From now on the peer finds that it came too late, unless it has come. */
inline give_up()
{
    q = claim[PAIR(me, p)];
    d_step {
        if
        :: q != entered + 1 && claim[PAIR(me, p)] == q && KEEPS(GIVING_UP_TAKES_CLAIM) ->
           claim[PAIR(me, p)] = GIVEN_UP
        :: else
        fi;
        q = 0
    }
}

/* What a speaker makes of the lines it has seen. */
#define TOO_LATE (!claimed[p] && KEEPS(CLAIM_IS_LOOKED_AT))
#define WRONG    (entry[PAIR(me, p)].hash != HASH(call) && KEEPS(RECORDS_ARE_COMPARED))

inline hear()
{
    p = FIRST;
    do
    :: p < N ->
       WAIT(entry[PAIR(me, p)].count == entered + 1);
       if
       :: atomic { bad -> skip }; give_up()
       :: atomic { !bad && (TOO_LATE || WRONG) -> skip }; fail()
       :: d_step {
              !bad && !TOO_LATE && !WRONG ->
              buffer[p] = entry[PAIR(me, p)].g_call;
              all = all && (entry[PAIR(me, p)].direct || !KEEPS(ALL_GO_ONE_WAY))
          }
       fi;
       atomic { failed = failed || bad; bad = 0; p = NEXT }
    :: atomic { p >= N -> p = 0; break }
    od
}

inline enter()
{
    atomic {
        failed = error[me] && KEEPS(ENTRY_CHECKS_ERROR);
        if /* whether all have mapped this rank's buffers */
        :: !failed -> direct = 1
        :: failed || !direct_only -> direct = 0
        fi;
        all = direct;
        rounds = synced
    };
    if
    :: !failed -> tell(); hear()
    :: else
    fi
}

inline signal(value)
{
    p = FIRST;
    do
    :: d_step { p < N -> come[PAIR(p, me)] = value; p = NEXT }
    :: atomic { p >= N -> p = 0; break }
    od
}

inline sync()
{
    if
    :: atomic { !failed -> rounds++ };
       signal(rounds);
       p = FIRST;
       do
       :: p < N ->
          WAIT(come[PAIR(me, p)] >= rounds);
          atomic {
              if
              :: !bad && come[PAIR(me, p)] >= FAR_AHEAD && KEEPS(FAR_AHEAD_IS_SEEN) ->
                 bad = 1;
                 error[me] = error[me] || KEEPS(FAR_AHEAD_SETS_ERROR)
              :: else
              fi;
              failed = failed || bad; bad = 0; p = NEXT
          }
       :: atomic { p >= N -> p = 0; break }
       od
    :: else
    fi
}

/* A peer's buffer is touched while its owner's call, this one, has not ended. */
inline touch()
{
    p = FIRST;
    do
    :: d_step {
           p < N && !failed ->
           assert(dead[p] || lent[p] == buffer[p]);
           g_wrong = g_wrong || buffer[p] != call + 1;
           p = NEXT
       }
    :: atomic { p >= N || failed -> p = 0; break }
    od
}

inline direct_way()
{
    if
    :: kind[call] == RAGGED ->
       sync(); /* the slices have been told; */
       if      /* they may turn out to be wrong */
       :: failed
       :: !failed
       :: !failed && TIME_UP -> fail(); atomic { failed = 1; bad = 0 }
       fi
    :: else
    fi;
    touch();
    if /* it may have gone wrong, or a peer's */
    :: kind[call] == PERSON && TIME_UP && !failed -> fail(); atomic { failed = 1; bad = 0 }
    :: kind[call] == PERSON -> failed = failed || error[me]
    :: kind[call] != PERSON
    fi;
    if
    :: KEEPS(MEETING_AFTER_TOUCH) -> sync()
    :: else
    fi
}

inline staged_way()
{
    stage[me] = call + 1;
    if
    :: KEEPS(MEETING_AFTER_STAGING) -> sync()
    :: else
    fi;
    p = FIRST;
    do
    :: d_step { p < N && !failed -> g_wrong = g_wrong || stage[p] != call + 1; p = NEXT }
    :: atomic { p >= N || failed -> p = 0; break }
    od;
    sync()
}

#define EXIT (synced + 1 + (all && kind[call] == RAGGED && KEEPS(EXIT_AFTER_LAST_TOUCH)))
#define LET_GO                                                                           \
    (!claimed[p] || come[PAIR(me, p)] >= EXIT || claim[PAIR(me, p)] == GIVEN_UP ||       \
     dead[p] || !KEEPS(WHO_CAME_IS_WAITED_FOR))

/* Lets the others go, and waits until they have let go. */
inline withdraw()
{
    signal(rounds + FAR_AHEAD);
    p = FIRST;
    do
    :: atomic { p < N && LET_GO -> p = NEXT }
    :: atomic { p >= N -> p = 0; break }
    od
}

inline large()
{
    enter();
    if
    :: !failed && all -> direct_way()
    :: !failed && !all -> staged_way()
    :: failed
    fi;
    if
    :: failed -> withdraw()
    :: else
    fi;
    atomic {
        if
        :: !failed -> entered++; synced = rounds
        :: else
        fi;
        forget_meeting()
    }
}

inline forget_meeting()
{
    rounds = 0; direct = 0; all = 0;
    for (p : 0 .. N - 1) {
        claimed[p] = 0;
        buffer[p] = 0
    }
    p = 0
}

/* ---- a rank's stream ---------------------------------------------------------------- */

/* The kernel has ended: the results are poisoned or right, the buffers the owner's. A
 * call that fails on one rank may have succeeded on another, but no later one does. */
inline call_end()
{
    lent[me] = 0;
    g_result[call * N + me] = (failed -> FAILED : GOOD);
    assert(failed || !g_wrong);               /* payload */
    assert(FAULTS || g_result[call * N + me] == GOOD);
    assert(failed || !mismatch || call > 0);  /* records that differ */
    for (p : 0 .. CALLS * N - 1) {
        g_late = g_late ||
                 failed && p / N > call && g_result[p] == GOOD ||
                 !failed && p / N < call && g_result[p] == FAILED
    }
    assert(!g_late);
    p = 0; failed = 0; g_wrong = 0
}

proctype rank(byte me)
{
    byte call, p, q;
    byte entered, synced, slots;    /* device_counts */
    byte rounds, turn;              /* of the call at hand */
    byte buffer[N];
    bit claimed[N];
    bit direct, all, failed, bad, first, g_wrong, g_late;

    {
        do
        :: call == CALLS || absent && me == N - 1 && call == 0 -> break
        :: atomic { call < CALLS -> lent[me] = call + 1 };
           if
           :: kind[call] == SMALL -> small()
           :: else -> large()
           fi;
           atomic { call_end(); call++ }
        od
    } unless {
        d_step {
            dead[me] -> call = 0; p = 0; q = 0; entered = 0; synced = 0; slots = 0;
            turn = 0; failed = 0; bad = 0; first = 0; g_wrong = 0; g_late = 0;
            forget_meeting()
        }
    };
    g_gone[me] = 1
}

#define TROUBLE(r) (reported[r] || dead[r])

/* The hosts: a report, a death or something else revokes the comm, and each host tells
 * its device in its own time. */
proctype hosts()
{
end:
    do
    :: atomic { !comm_aborted && (stranger || TROUBLE(0) || TROUBLE(1) || TROUBLE(N - 1)) ->
                comm_aborted = 1 }
    :: atomic { comm_aborted && !abort_word[0] -> abort_word[0] = 1 }
    :: atomic { comm_aborted && !abort_word[1] -> abort_word[1] = 1 }
    :: atomic { comm_aborted && !abort_word[N - 1] -> abort_word[N - 1] = 1 }
    od
}

proctype killer()
{
    if
    :: dead[0] = 1
    :: dead[1] = 1
    :: dead[N - 1] = 1
    fi
}

inline set_options()
{
    c_code {
        now.kinds = getenv("KINDS") ? atoi(getenv("KINDS")) : 0;
        now.deadlines = getenv("DEADLINES") ? atoi(getenv("DEADLINES")) : 0;
        now.deaths = getenv("DEATHS") != 0;
        now.absent = getenv("ABSENT") != 0;
        now.stranger = getenv("STRANGER") != 0;
        now.direct_only = getenv("DIRECT_ONLY") != 0;
        now.mismatch = getenv("MISMATCH") != 0;
    }
}

init
{
    byte r;

    atomic {
        choose_rules();
        set_options();
        for (r : 0 .. CALLS - 1) {
            if
            :: kinds != 0 -> kind[r] = kinds
            :: kinds == 0 -> kind[r] = SMALL
            :: kinds == 0 -> kind[r] = LARGE
            :: kinds == 0 -> kind[r] = RAGGED
            fi
        }
        for (r : 0 .. N - 1) {
            run rank(r)
        }
        if
        :: deaths || stranger || deadlines == 2 -> run hosts()
        :: else
        fi;
        if
        :: deaths -> run killer()
        :: else
        fi
    };
    for (r : 0 .. N - 1) {
        g_gone[r]
    }
}
