/* Which calls over mesh axes belong together: how python/oriel/_calls names and digests them,
 * how src/ffi/site.c and src/ffi/calls.c count them, and what a new world makes new.
 *
 * Three programs: a function f in two shapes, whose two calls are made by one line and do not need
 * each other, and a function g, whose first call is made by that line too and whose second needs
 * the first. Processes compile them ahead of time in any order, or when they come to them, or
 * again, and make the same executions in each world. Calls meet in a table; cell.pml has how.
 *
 * Calls that meet and succeed are one call of equal modules, always. Where an execution raised
 * before its calls they may be of different executions, until the world ends. Where two threads
 * launch one program, and calls of different launches have met, the world has failed before all
 * have left it. Where nothing has happened in a world no call of it fails. Everybody ends, and
 * nobody by its deadline, but in a world where an execution raised. */

#ifndef N
#define N 2             /* processes, of one rank each: 2 or 3 */
#endif
#define EXECUTIONS 2    /* at most, as below */
#define WORLDS     3

byte executions;        /* in each world */
byte worlds;            /* how often each process calls init */
bit lacks;              /* the last process's f or g may lack a call */
bit raises;             /* one execution may raise between its calls, or before them */
byte threads;           /* second threads launch 1: the other function; 2: the same program, in
                         * the first process alone; others make one execution more */
bit copies;             /* XLA copies a call */
bit graph;              /* programs may be captured */
bit misses;             /* a process may let the others wait in init */
bit deaths;             /* one process may die, anywhere, and may be replaced */

#include "rules.pml"

#define COUNTED_IN_THE_WORLD     1
#define COUNTS_ARE_RENEWED       2
#define NAMED_BY_PLACE           3
#define MODULE_IS_IN_THE_NAME    4
#define COPIES_ARE_NAMED         5
#define COPIES_ARE_REFUSED       6
#define DIGEST_IS_COMPARED       7
#define DIGEST_OF_THE_WHOLE      8
#define RUNS_ARE_IN_ORDER        9
#define RUN_AND_COUNT_ARE_ONE    10
#define WAIT_LOOKS_AT_CALLS      11
#define WAIT_LOOKS_AT_THE_GONE   12
#define GRAPH_IS_COMPARED        13
#define NUMBER_IS_THE_STORES     14
#define DEATH_ENDS_THE_ROUND     15
#define FRAMES_END_WITH_A_WORLD  16

#define F_A      0
#define F_B      1
#define G        2
#define PROGRAMS 3
#define NAMES    6
#define COUNTS   4      /* those of a world, and for a mutant of two */
#define NOWHERE  255
#define NOTHING  PROGRAMS
#define MANY     (2 * WORLDS + 2) /* numbers of worlds */

#define ALL  ((1 << N) - 1)
#define ME   (1 << r)
#define BIT(mask, i) ((mask) >> (i) & 1)

/* Chosen at the start. */
byte plan[EXECUTIONS + 1]; /* programs */
byte lacking = NOTHING; /* a program that lacks its first call, on the last process */

/* The store. */
byte last;              /* the newest world that anybody has asked for */
byte joined[MANY];      /* processes */
byte round[MANY];       /* how its init stands: */
#define OPEN   0
#define MADE   1
#define FAILED 2
byte gone;              /* processes that have ended, and are not replaced */
byte absent;            /* that do something else, and come to init later */

/* The world that is: all new when init has made it. */
bit failed;             /* revoked */
byte away;              /* processes that have left it, or died */
byte came[NAMES * COUNTS];
byte left[NAMES * COUNTS];
byte record[NAMES * COUNTS];
byte what[NAMES * COUNTS];   /* which call of which program the first to come means ... */
byte number[NAMES * COUNTS]; /* ... and in which execution: as launched */
bit other_call[NAMES * COUNTS];      /* another rank means another */
bit other_execution[NAMES * COUNTS];
bit trouble;            /* something has happened that may end it */
bit behind;             /* an execution raised */
bit swapped;            /* ranks have met with different launches */

/* Processes. */
byte count[N * NAMES];  /* arrivals, in this world */
byte at[N * 4];         /* where the calls of each thread wait */
byte inside[N * 2];     /* the program that each thread executes */
byte runs[N];           /* launches, where two threads launch one program ... */
byte run_of[N * 2];     /* ... and 1 + the last of them that has come to each call, ... */
byte count_of[N * 2];   /* ... which it came to as this one */
byte captured[N * PROGRAMS]; /* 1 + the world in which a graph was; 0: none */
bit captured_at[N * PROGRAMS]; /* where that one's memory lay */
bit lies[N];            /* where this one's does, as the process sees it */
byte serial[N * PROGRAMS];   /* for a mutant: which of the process's executables it is */
byte own[N * PROGRAMS * 2];  /* for a mutant: arrivals at an executable's calls */
bit thread_ended[N];    /* the second one */
byte victim = NOTHING;  /* dies */
bit raised;             /* an execution, in any world */

/* ---- what lowering gives a call ----------------------------------------- */

#define LACKS(p)     (lacking == p && r == N - 1)
/* With threads one each is enough. */
#define HAS(p)       (LACKS(p) -> 2 : (threads -> 1 : 3))
#define SHARED       (copies || !KEEPS(COPIES_ARE_NAMED))
/* Of f both calls are of one place. */
#define ORDINAL(p, i) (SHARED || LACKS(p) -> 0 : i)
#define PLACE(p, i)  (p == G && KEEPS(MODULE_IS_IN_THE_NAME) -> 2 + i : (p == G && i -> 3 : 0))
#define NAME(p, i)                                                             \
    (!KEEPS(NAMED_BY_PLACE) -> 2 * serial[r * PROGRAMS + p] + i :              \
     PLACE(p, i) + (p == G -> 0 : ORDINAL(p, i)))
/* Of the calls; of those up to this one. */
#define DIGEST(p, i)                                                           \
    (!KEEPS(DIGEST_IS_COMPARED) -> 0 :                                         \
     (KEEPS(DIGEST_OF_THE_WHOLE) -> 2 - LACKS(p) : i + 1 - LACKS(p)))
/* Calls of one shape have the same bytes in both functions. */
#define RECORD(p, i) ((p == F_B) + 2 * (p == G && KEEPS(DIGEST_IS_COMPARED)) + 4 * DIGEST(p, i))

inline compile(p)
{
    d_step {
        known = known | 1 << p;
        captured[r * PROGRAMS + p] = 0;
        if
        :: !KEEPS(NAMED_BY_PLACE) -> serial[r * PROGRAMS + p] = serials % PROGRAMS; serials++
        :: else
        fi;
        own[(r * PROGRAMS + p) * 2] = 0;
        own[(r * PROGRAMS + p) * 2 + 1] = 0
    }
}

/* ---- a call -------------------------------------------------------------- */

#define MINE(i) at[(r * 2 + t) * 2 + i]
#define WAITS(i) (MINE(i) != NOWHERE && came[MINE(i)] != ALL)

inline fail()
{
    assert(trouble);
    failed = 1
}

/* Counts an arrival. */
inline draw(p, i)
{
    if
    :: KEEPS(COUNTED_IN_THE_WORLD) ->
       cell = NAME(p, i) * COUNTS + count[r * NAMES + NAME(p, i)];
       count[r * NAMES + NAME(p, i)]++
    :: else ->
       cell = NAME(p, i) * COUNTS + own[(r * PROGRAMS + p) * 2 + i];
       own[(r * PROGRAMS + p) * 2 + i]++
    fi
}

/* Both have grown since the last arrival: else another thread's lies between. */
inline check_run(i, cell)
{
    if
    :: threads == 2 && KEEPS(RUNS_ARE_IN_ORDER) &&
       (run_of[r * 2 + i] > launch + 1 || count_of[r * 2 + i] > cell) ->
       trouble = 1;
       fail()
    :: threads == 2 && !(KEEPS(RUNS_ARE_IN_ORDER) &&
                         (run_of[r * 2 + i] > launch + 1 || count_of[r * 2 + i] > cell)) ->
       run_of[r * 2 + i] = launch + 1;
       count_of[r * 2 + i] = cell
    :: else
    fi
}

inline enter(p, i)
{
    if
    :: came[cell] == 0 ->
       record[cell] = RECORD(p, i);
       what[cell] = 2 * p + i;
       number[cell] = launch
    :: came[cell] != 0 && record[cell] != RECORD(p, i) -> fail()
    :: else
    fi;
    came[cell] = came[cell] | ME;
    other_call[cell] = other_call[cell] || what[cell] != 2 * p + i;
    other_execution[cell] = other_execution[cell] || number[cell] != launch;
    MINE(i) = cell;
    made = made | 1 << i;
    cell = 0
}

/* A key that comes again waits until all have left. */
inline meet(p, i)
{
    if
    :: !failed && !(came[cell] & ME) -> enter(p, i)
    :: failed
    :: timeout -> late()
    fi
}

/* Two threads come between the steps of one arrival. */
inline arrive_first(p, i)
{
    if
    :: KEEPS(RUN_AND_COUNT_ARE_ONE) -> draw(p, i)
    :: else -> check_run(i, 0)
    fi
}

inline arrive_then(p, i)
{
    if
    :: KEEPS(RUN_AND_COUNT_ARE_ONE) -> check_run(i, cell)
    :: else -> draw(p, i)
    fi;
    meet(p, i)
}

inline free(m)
{
    came[m] = 0;
    left[m] = 0;
    record[m] = 0;
    what[m] = 0;
    number[m] = 0;
    other_call[m] = 0;
    other_execution[m] = 0
}

/* All have come. The last to leave frees the cell. */
inline end_call(p, i)
{
    d_step {
        cell = MINE(i);
        wrong = wrong || other_call[cell];
        swapped = swapped || (other_execution[cell] && threads == 2);
        late_one = late_one || (other_execution[cell] && threads != 2);
        left[cell] = left[cell] | ME;
        if
        :: left[cell] == ALL -> free(cell)
        :: else
        fi;
        MINE(i) = NOWHERE;
        done = done | 1 << i;
        cell = 0
    }
}

/* A member that has not come waits in another call of the same function, whose program differs.
 * In one thread no program that is equal on both has them wait for each other so. */
#define THEIRS(q, u, j) at[((q) * 2 + u) * 2 + j]
#define ELSEWHERE(q, u, j, m)                                                  \
    (THEIRS(q, u, j) != NOWHERE && !(came[THEIRS(q, u, j)] & ME) &&            \
     (inside[(q) * 2 + u] == G) == (p == G) && record[THEIRS(q, u, j)] != record[m])
#define DIFFERS(q, m)                                                          \
    (!BIT(came[m], q) && (ELSEWHERE(q, 0, 0, m) || ELSEWHERE(q, 0, 1, m) ||    \
                          ELSEWHERE(q, 1, 0, m) || ELSEWHERE(q, 1, 1, m)))
#if N == 2
#define ANY_DIFFERS(m) DIFFERS(1 - r, m)
#else
#define ANY_DIFFERS(m) (DIFFERS((r + 1) % 3, m) || DIFFERS((r + 2) % 3, m))
#endif

/* The deadline: only where nothing else is left to happen. */
inline late()
{
    d_step { at_the_deadline = 1; assert(!at_the_deadline || behind); at_the_deadline = 0 };
    failed = 1
}

/* XLA makes calls that do not need each other in any order. */
#define MAY_MAKE(i)                                                            \
    (!failed && BIT(HAS(p) & ~made, i) && (p != G || i == 0 || LACKS(p) || BIT(done, 0)))
#define IS_COPY (copies && p != G && made && KEEPS(COPIES_ARE_REFUSED))
#define CALL(i)                                                                \
    :: atomic { MAY_MAKE(i) && IS_COPY -> trouble = 1; fail() }                \
    :: atomic { MAY_MAKE(i) && !IS_COPY && threads != 2 -> draw(p, i); meet(p, i) } \
    :: atomic { MAY_MAKE(i) && threads == 2 -> arrive_first(p, i) };           \
       atomic { arrive_then(p, i) }                                            \
    :: MINE(i) != NOWHERE && came[MINE(i)] == ALL -> end_call(p, i)               \
    :: atomic { !failed && WAITS(i) && (away & ~came[MINE(i)]) &&              \
                KEEPS(WAIT_LOOKS_AT_THE_GONE) -> fail() }                      \
    :: atomic { !failed && WAITS(i) && ANY_DIFFERS(MINE(i)) &&                 \
                KEEPS(WAIT_LOOKS_AT_CALLS) -> fail() }

#define EXECUTION_LOCALS                                                       \
    byte made, done, cell, launch;                                             \
    bit wrong, late_one, at_the_deadline

/* One execution of program p, as the `launch`th that is launched. */
inline execute(p)
{
    atomic { inside[r * 2 + t] = p; trouble = trouble || LACKS(p) };
    do
    CALL(0)
    CALL(1)
    :: d_step { !failed && done == HAS(p) ->
                assert(!wrong);
                assert(!late_one || behind) };
       break
    :: failed -> break
    :: atomic { raises && !raised && !failed && made == done && done != HAS(p) ->
                raised = 1; behind = 1; trouble = 1 };
       break
    :: !failed && timeout -> late()
    od;
    atomic {
        MINE(0) = NOWHERE;
        MINE(1) = NOWHERE;
        inside[r * 2 + t] = NOTHING;
        made = 0;
        done = 0;
        wrong = 0;
        late_one = 0
    }
}

/* XLA replays a graph, once it has made one, by initialize alone. Its addresses are those of the
 * world in which it was; g has a person's kernel, whose frame no other world has. It is refused in
 * initialize where they are gone: the execution raises, and the program is captured anew. */
#define GRAPH captured[r * PROGRAMS + p]
#define LASTS (captured_at[r * PROGRAMS + p] == lies[r])

inline replay(p)
{
    if
    :: GRAPH == 0 && graph -> GRAPH = 1 + world; captured_at[r * PROGRAMS + p] = lies[r]
    :: GRAPH == 0
    :: GRAPH != 0 && GRAPH != 1 + world && KEEPS(GRAPH_IS_COMPARED) &&
       (!LASTS || (p == G && KEEPS(FRAMES_END_WITH_A_WORLD))) ->
       GRAPH = 0;
       refused = 1;
       behind = 1;
       trouble = 1
    :: else -> assert(GRAPH == 1 + world || (p != G && LASTS)) /* captured */
    fi
}

/* ---- worlds ---------------------------------------------------------------- */

/* The first to ask gives the world that is to be made its number; in the code that is process 0. */
inline take_number()
{
    if
    :: KEEPS(NUMBER_IS_THE_STORES) && last != 0 && round[last] == OPEN
    :: KEEPS(NUMBER_IS_THE_STORES) && !(last != 0 && round[last] == OPEN) -> last++
    :: else -> inits++; last = inits
    fi;
    world = last
}

inline make_world()
{
    round[world] = MADE;
    failed = 0;
    away = 0;
    trouble = 0;
    behind = 0;
    swapped = 0;
    for (i : 0 .. NAMES * COUNTS - 1) {
        free(i)
    }
    for (i : 0 .. N * NAMES - 1) {
        if
        :: KEEPS(COUNTS_ARE_RENEWED) -> count[i] = 0
        :: else
        fi
    }
    i = 0
}

/* Leaves `world` 0 where there is none. One that is absent may be given up. A process
 * that comes to a number that is over meets nobody. */
inline begin_world()
{
    d_step {
        take_number();
        if
        :: round[world] == OPEN && !(joined[world] & ME) -> joined[world] = joined[world] | ME
        :: else -> world = NOWHERE
        fi;
        if
        :: world != NOWHERE && joined[world] == ALL -> make_world()
        :: else
        fi
    };
    if
    :: atomic { world != NOWHERE && round[world] == MADE ->
                if
                :: lies[r] = 0
                :: graph -> lies[r] = 1
                fi }
    :: atomic { world != NOWHERE && round[world] == FAILED -> world = 0 }
    :: atomic { world != NOWHERE && round[world] == OPEN && ((gone | absent) & ~joined[world]) ->
                round[world] = FAILED;
                world = 0 }
    :: timeout -> d_step { at_the_deadline = 1; assert(!at_the_deadline) }; world = 0
    fi
}

inline leave_world()
{
    d_step {
        away = away | ME;
        assert(away != ALL || !swapped || failed);
        world = 0
    }
}

proctype second_thread(byte r, p)
{
    byte t = 1;
    EXECUTION_LOCALS;

    if
    :: threads == 2 -> atomic { launch = runs[r]; runs[r]++ }
    :: else
    fi;
    execute(p);
    atomic { launch = 0; thread_ended[r] = 1 }
}

#define HAS_SECOND (threads == 1 || (threads == 2 && r == 0))

inline run_plan()
{
    atomic {
        if
        :: HAS_SECOND -> run second_thread(r, (threads == 2 -> F_A : G))
        :: else -> thread_ended[r] = 1
        fi
    };
    for (k : 0 .. executions - (threads != 2 || HAS_SECOND)) {
        atomic {
            if
            :: failed -> break
            :: !failed
            fi;
            if
            :: threads != 2 -> compile(plan[k]); known = (KEEPS(NAMED_BY_PLACE) -> 0 : known)
            :: BIT(known, plan[k]) || KEEPS(NAMED_BY_PLACE)
            fi;
            if
            :: threads == 2 -> launch = runs[r]; runs[r]++
            :: else -> launch = k
            fi;
            replay(plan[k])
        };
        if
        :: refused -> refused = 0
        :: else -> execute(plan[k])
        fi
    };
    atomic {
        thread_ended[r] ->
        thread_ended[r] = 0;
        k = 0;
        launch = 0;
        runs[r] = 0;
        run_of[r * 2] = 0;
        run_of[r * 2 + 1] = 0;
        count_of[r * 2] = 0;
        count_of[r * 2 + 1] = 0
    }
}

proctype process(byte r)
{
    byte t = 0;
    byte known, serials, inits, world, tries, i, k;
    bit refused;
    EXECUTION_LOCALS;

    atomic {
        gone = gone & ~ME;
        for (i : 0 .. NAMES - 1) {
            count[r * NAMES + i] = 0
        };
        for (i : 0 .. PROGRAMS - 1) {
            captured[r * PROGRAMS + i] = 0
        };
        i = 0;
        do
        :: !BIT(known, F_A) -> compile(F_A)
        :: !BIT(known, F_B) -> compile(F_B)
        :: !BIT(known, G) -> compile(G)
        :: break
        od;
        known = (KEEPS(NAMED_BY_PLACE) -> 0 : known)
    };
    {
        do
        :: tries == worlds -> break
        :: tries < worlds ->
           tries++;
           if
           :: misses && r == 0 && tries == 2 -> absent = ME; absent = 0
           :: else
           fi;
           begin_world();
           if
           :: world == 0
           :: world != 0 -> run_plan(); leave_world()
           fi
        od;
        gone = gone | ME
    } unless {
        victim == r
    };
    if
    :: atomic { victim == r ->
                victim = NOTHING; trouble = 1; away = away | ME; gone = gone | ME;
                at[r * 4] = NOWHERE; at[r * 4 + 1] = NOWHERE;
                if
                :: round[last] == OPEN && (joined[last] & ME) && KEEPS(DEATH_ENDS_THE_ROUND) ->
                   round[last] = FAILED
                :: else
                fi }
       if
       :: run process(r)
       :: skip
       fi
    :: else
    fi
}

proctype fate()
{
    if
    :: victim = 0
    :: victim = N - 1
    :: skip
    fi
}

init
{
    byte r, i;

    atomic {
        choose_rules();
        c_code {
            now.executions = getenv("EXECUTIONS") ? atoi(getenv("EXECUTIONS")) : 2;
            now.worlds = getenv("WORLDS") ? atoi(getenv("WORLDS")) : 2;
            now.lacks = getenv("LACKS") != 0;
            now.raises = getenv("RAISES") != 0;
            now.threads = getenv("THREADS") ? atoi(getenv("THREADS")) : 0;
            now.copies = getenv("COPIES") != 0;
            now.graph = getenv("GRAPH") != 0;
            now.misses = getenv("MISSES") != 0;
            now.deaths = getenv("DEATHS") != 0;
        };
        if
        :: lacks && threads != 2 -> lacking = F_A
        :: lacks -> lacking = G
        :: else
        fi;
        for (i : 0 .. executions - 1) {
            if
            :: plan[i] = F_A
            :: threads != 2 -> plan[i] = F_B
            :: threads == 0 -> plan[i] = G
            fi
        };
        for (r : 0 .. N * 4 - 1) {
            at[r] = NOWHERE
        };
        for (r : 0 .. N * 2 - 1) {
            inside[r] = NOTHING
        };
        for (r : 0 .. N - 1) {
            run process(r)
        };
        if
        :: deaths -> run fate()
        :: else
        fi
    }
}
