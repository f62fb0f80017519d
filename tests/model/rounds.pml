/* Rounds in which all processes register with NCCL, as in src/core/nccl/register.c: a call that
 * returns when all are in it. A thread of each process makes calls of NCCL's own at the same
 * time, which return when all are in them, too; both need the process's communicators, one at
 * a time. Nobody may be in NCCL with others that never come. */

#ifndef N
#define N 2
#endif
#ifndef ROUNDS
#define ROUNDS 3        /* at most: a round that is cancelled is tried again */
#endif

byte calls;             /* of NCCL's own, that each process makes */
byte unregistered;      /* rounds that are wanted */

#include "rules.pml"

#define LOCKS_ARE_TRIED      1
#define ENTER_WHEN_ALL_READY 2
#define READY_HOLDS_LOCK     3
#define READY_IS_FOLLOWED    4
#define LEAD_CANCELS_AT_END  5

#define IDLE   0
#define OFFER  1
#define ENTER  2
#define CANCEL 3

#define BUSY   1
#define READY  2
#define DONE   3

typedef Process {
    bit locked;
    bit taken;          /* by a call of NCCL's own */
    byte round;         /* voted in, and ... */
    byte vote;
    bit ends;           /* its user has come to the end */
    byte in_round;      /* rounds that it has entered ... */
    byte in_call;       /* ... and calls, at NCCL */
}

Process p[N];
byte number;            /* of the round */
byte phase;

/* N is 2 or 3. */
#define ALL(what) (p[0] what && p[1] what && p[N - 1] what)
#define VOTED(what) \
    (ALL(.round == number) && p[0].vote what && p[1].vote what && p[N - 1].vote what)

proctype user(byte me)
{
    byte call;

    do
    :: call < calls ->
       atomic { !p[me].locked -> p[me].locked = 1; p[me].taken = 1 };
       p[me].in_call++;
       atomic { ALL(.in_call > call) -> p[me].taken = 0; p[me].locked = 0; call++ }
    :: else -> break
    od;
    p[me].ends = 1
}

inline cast(what)
{
    p[me].round = number;
    p[me].vote = what
}

proctype registrar(byte me)
{
    byte holds;

    do
    /* the lead */
    :: atomic { me == 0 && phase == OFFER && VOTED(>= BUSY) ->
                phase = (VOTED(== READY) -> ENTER : CANCEL) }
    :: atomic { me == 0 && phase == OFFER && !KEEPS(ENTER_WHEN_ALL_READY) &&
                p[0].round == number && p[0].vote == READY -> phase = ENTER }
    :: atomic { me == 0 && phase == OFFER && p[0].ends && KEEPS(LEAD_CANCELS_AT_END) ->
                phase = CANCEL }
    :: atomic { me == 0 && phase == ENTER && VOTED(== DONE) -> phase = IDLE; unregistered-- }
    :: atomic { me == 0 && phase != OFFER && phase != ENTER && unregistered > 0 &&
                !p[0].ends && number < ROUNDS -> number++; phase = OFFER }
    /* all */
    :: atomic { holds != 0 && (holds != number || phase == CANCEL) ->
                holds = 0;
                p[me].locked = (KEEPS(READY_HOLDS_LOCK) -> 0 : p[me].locked) }
    :: atomic { phase == OFFER && p[me].round != number && holds == 0 &&
                (p[me].ends || p[me].locked && KEEPS(LOCKS_ARE_TRIED)) -> cast(BUSY) }
    :: atomic { phase == OFFER && p[me].round != number && holds == 0 && !p[me].ends &&
                !p[me].locked ->
                p[me].locked = KEEPS(READY_HOLDS_LOCK);
                holds = number;
                cast(READY) }
    :: atomic { phase == ENTER && holds == number ->
                assert(!p[me].taken);
                p[me].in_round++ };
       atomic { ALL(.in_round >= p[me].in_round) ->
                holds = 0;
                p[me].locked = (KEEPS(READY_HOLDS_LOCK) -> 0 : p[me].locked);
                cast(DONE) }
    :: atomic { p[me].ends && (holds == 0 || !KEEPS(READY_IS_FOLLOWED)) &&
                (me != 0 || phase != OFFER || !KEEPS(LEAD_CANCELS_AT_END)) -> break }
    od
}

init
{
    byte i;

    atomic {
        choose_rules();
        c_code {
            now.calls = getenv("CALLS") ? atoi(getenv("CALLS")) : 2;
            now.unregistered = getenv("WANTED") ? atoi(getenv("WANTED")) : 2;
        };
        for (i : 0 .. N - 1) {
            run user(i);
            run registrar(i)
        }
    }
}
