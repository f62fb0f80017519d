/* STAGED: a pipeline of K chunks through D staging slots for each member, with
 * three counters for each member that only their owner writes. The reduced
 * slice replaces the own slice in the own slot. Commit point: finished == n.
 * In one shot nothing is reduced in between: the published chunks themselves are
 * gathered, and two counters are enough.
 *
 * A member whose `send` lies in a window shows that, and copies nothing: others read it
 * where it is, and it is the owner's again once its call has ended. Wrong data is then
 * known to the model alone (g_wrong): the code cannot tell.
 *
 * The three steps of a chunk are taken in any order their guards allow, so
 * whatever order the code prefers is among those checked. */

#ifndef K
#define K 2             /* chunks */
#endif
#ifndef D
#define D 1             /* slots */
#endif
#ifndef ONE_SHOT
#define ONE_SHOT 0      /* 1: nothing but all_reduce of more than two is in two */
#endif

#ifndef WINDOWS
#define WINDOWS 0       /* so many ranks, from the first, have their `send` in a window */
#endif
#ifndef IN_PLACE
#define IN_PLACE 0      /* 1: `send` is `recv` as well */
#endif

#define COMMITTED(w) (cell[w].finished == N)
#define BLOCK_FIELDS                                                           \
    byte pub[N]; byte red[N]; byte got[N];                                     \
    byte slot[N * D]; byte slice[N * D]; bit shown[N];
#define block_reset(b, i)                                                      \
    block[b].pub[i] = 0; block[b].red[i] = 0; block[b].got[i] = 0;             \
    block[b].shown[i] = 0

#include "cell.pml"

byte buffer[N * K];     /* `send`: op + 1 while lent to that operation, else the owner's own */

/* In one shot a member writes what others have yet to read. */
#define SHOWS                                                                  \
    (me < WINDOWS && !(ONE_SHOT && IN_PLACE && KEEPS(IN_PLACE_SHOWS_A_COPY)))

/* Every member's counter is at least x; N is 2 or 3. */
#define ALL(counter, x)                                                        \
    (MINE.counter[0] >= x && MINE.counter[1] >= x && MINE.counter[N - 1] >= x)

#define TAG(k)    (op * K + (k) + 1)
#define PLACE(j, k) ((j) * D + (k) % D)
#define NONE_SHOWN  (!MINE.shown[0] && !MINE.shown[1] && !MINE.shown[N - 1])

/* Own chunk into the own slot; the slice reduced there earlier is gone. */
inline chunk_store(k)
{
    MINE.slot[PLACE(me, k)] = TAG(k);
    MINE.slice[PLACE(me, k)] = 0
}

inline chunk_read(j, k)
{
    assert(MINE.shown[j] || MINE.slot[PLACE(j, k)] == TAG(k));
    g_wrong = g_wrong || MINE.shown[j] && buffer[(j) * K + (k)] != op + 1
}

inline chunk_reduce(k)
{
    for (i : 0 .. N - 1) {
        chunk_read(i, k)
    }
    i = 0;
    MINE.slice[PLACE(me, k)] = TAG(k)
}

inline chunk_gather(k)
{
    for (i : 0 .. N - 1) {
        if
        :: ONE_SHOT -> chunk_read(i, k)
        :: else -> assert(MINE.slice[PLACE(i, k)] == TAG(k))
        fi
    }
    i = 0;
    if
    :: WINDOWS && IN_PLACE -> buffer[me * K + k] = 0
    :: else
    fi
}

#define CAN_PUB                                                                \
    (!SHOWS && pub < K && (ALL(got, pub + 1 - D) || !KEEPS(PUB_WAITS_FOR_GOT)))
#define CAN_RED                                                                \
    (!ONE_SHOT && red < pub && (ALL(pub, red + 1) || !KEEPS(RED_WAITS_FOR_PUB)) && \
     (ALL(got, red + 1 - D) || !KEEPS(RED_WAITS_FOR_GOT)))
#define CAN_GET                                                                \
    (!ONE_SHOT && got < red && (ALL(red, got + 1) || !KEEPS(GOT_WAITS_FOR_RED)) || \
     ONE_SHOT && got < pub && (ALL(pub, got + 1) || !KEEPS(GOT_WAITS_FOR_PUB)))

/* A member that still reads windows has not finished; that there are none it knows
 * when all have published something. */
#define READS_NO_WINDOW                                                        \
    (!WINDOWS || !ONE_SHOT || got == K || !KEEPS(FINISH_AFTER_READS) ||        \
     NONE_SHOWN && (ALL(pub, 1) || !KEEPS(FINISH_KNOWS_WINDOWS)))

/* `fresh` tells that the own finish has been counted. */
#define CAN_FINISH                                                             \
    (fresh == NONE &&                                                          \
     (red == K || pub == K && (ONE_SHOT || !KEEPS(FINISH_AFTER_RED)) ||        \
      !KEEPS(FINISH_AFTER_PUB)) && READS_NO_WINDOW &&                          \
     (!cell[way].revoked || !KEEPS(FINISH_CHECKS_REVOKED)))

#define FORGET_PROGRESS pub = 0; red = 0; got = 0; fresh = NONE

/* pub, red and got are the caller's own progress, of which the counters in the
 * block tell the others. */
inline staged_run()
{
    if
    :: SHOWS ->
       pub = K;
       if
       :: KEEPS(SHOWN_BEFORE_COUNTER) -> MINE.shown[me] = 1; MINE.pub[me] = K
       :: else -> MINE.pub[me] = K; MINE.shown[me] = 1
       fi
    :: else
    fi;
    do
    :: TOGETHER {
           d_step { CAN_PUB && KEEPS(DATA_BEFORE_COUNTER) -> chunk_store(pub); pub++ };
           MINE.pub[me] = pub
       }
    :: d_step { CAN_PUB && !KEEPS(DATA_BEFORE_COUNTER) -> pub++; MINE.pub[me] = pub };
       d_step { chunk_store(pub - 1) }
    :: TOGETHER { d_step { CAN_RED -> chunk_reduce(red); red++ }; MINE.red[me] = red }
    :: TOGETHER { d_step { CAN_GET -> chunk_gather(got); got++ }; MINE.got[me] = got }
    :: d_step { CAN_FINISH -> cell[way].finished++; fresh = 0 }
    :: atomic { got == K && (COMMITTED(way) || !KEEPS(SUCCESS_AFTER_COMMIT)) ->
                state = GOOD; break }
    GIVING_UP
    od
}

inline buffer_lend()
{
    for (i : 0 .. K - 1) {
        buffer[me * K + i] = op + 1
    }
    i = 0
}

/* The owner may write it. */
inline buffer_take_back()
{
    assert(state == FAILED || !g_wrong); /* a wrong buffer was read */
    for (i : 0 .. K - 1) {
        buffer[me * K + i] = 0
    }
    i = 0;
    g_wrong = 0
}

proctype rank(byte me; byte caller)
{
    LOCALS;
    byte pub, red, got;
    bit g_wrong;

    {
        do
        :: round == LAST || ABSENT && me == N - 1 -> break
        :: atomic {
               round < LAST -> call_begin();
               if
               :: me < WINDOWS -> buffer_lend()
               :: else
               fi
           };
           cell_enter();
           if
           :: state == ENTERED -> cell_arrive()
           :: else
           fi;
           if
           :: state == ARRIVED -> staged_run(); atomic { FORGET_PROGRESS }
           :: else
           fi;
           if
           :: state == GOOD -> cell_leave()
           :: TOGETHER { state == FAILED -> call_fail() }
           fi;
           atomic {
               if
               :: WINDOWS -> buffer_take_back()
               :: else
               fi;
               call_return()
           }
        od
    } unless {
        d_step { dead[me] -> FORGET_CALL; FORGET_PROGRESS; g_wrong = 0; round = 0 }
    };
    g_gone[me * CALLERS + caller] = 1
}

init
{
    world_run()
}
