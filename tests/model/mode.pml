/* The mode of a large call on a GPU, direct or staged, and which CTA does what: reachable(),
 * next_item() and end_items() in src/ops/cuda. Two ranks in two processes; a rank's
 * buffers become reachable at any time, once. In either mode every rank does its tile of
 * every piece of the call, once. Meetings are those of device.pml, and do not fail here. */

#ifndef CTAS
#define CTAS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef PIECES
#define PIECES (2 * CTAS)       /* an item is one, a strip two */
#endif

bit twice;              /* a piece may be done twice, as where no call is in place */
bit both;               /* both ranks' buffers become reachable meanwhile, not one's alone */

#include "rules.pml"

#define ONE_DECIDES_FOR_ALL 1
#define ONE_THREAD_LOOKS    2
#define THE_LAST_RESETS     3
#define COUNTED_AFTER_TAKING 4

#define OPEN   0
#define DIRECT 1
#define STAGED 2

bit ready[2];
byte mode[2];
byte taken[2];
byte done[2];
byte told[2 * CTAS];    /* the last call that the CTA has come to, from 1 ... */
byte told_mode[2 * CTAS];
byte over[2 * CTAS];    /* ... and the last that it has ended */
byte ended[2];          /* CTAs of the rank that have, in all calls */
byte wrote[2 * PIECES]; /* the last call in which the rank did its tile of the piece */

#define ME   (me * CTAS + cta)
#define PEER ((1 - me) * CTAS + cta)

inline do_piece(i)
{
    d_step {
        assert(twice || wrote[me * PIECES + i] == call - 1); /* every piece once */
        wrote[me * PIECES + i] = call
    }
}

/* `mine` is what this CTA tells, and `goes` what it goes by. */
inline decide()
{
    atomic { mine = (ready[me] -> DIRECT : STAGED); goes = mine };
    if
    :: !KEEPS(ONE_THREAD_LOOKS) -> goes = (ready[me] -> DIRECT : STAGED)
    :: KEEPS(ONE_THREAD_LOOKS) && KEEPS(ONE_DECIDES_FOR_ALL) ->
       d_step {
           if
           :: mode[me] == OPEN -> mode[me] = mine
           :: else -> mine = mode[me]
           fi;
           goes = mine
       }
    :: else
    fi
}

inline meet()
{
    d_step { told_mode[ME] = mine; told[ME] = call };
    atomic { told[PEER] >= call -> goes = (told_mode[PEER] == DIRECT -> goes : STAGED) }
}

inline direct_mode()
{
    item = cta;
    do
    :: item < PIECES ->
       do_piece(item);
       d_step { item = CTAS + taken[me]; taken[me]++ }
    :: else -> item = 0; break
    od
}

inline staged_mode()
{
    item = 2 * cta;
    do
    :: item < PIECES ->
       do_piece(item);
       do_piece(item + 1);
       item = item + 2 * CTAS
    :: else -> item = 0; break
    od
}

/* end_items(): the last of all CTAs sets back what the next call finds. */
inline count()
{
    d_step { done[me]++; last = done[me] == (KEEPS(THE_LAST_RESETS) -> CTAS : 1) };
    if
    :: d_step { last -> taken[me] = 0; done[me] = 0; mode[me] = OPEN; last = 0 }
    :: else
    fi
}

/* When all CTAs of a rank have met their fellows at the end, its result is complete. */
inline end_call()
{
    over[ME] = call;
    atomic {
        over[PEER] >= call ->
        ended[me]++;
        if
        :: ended[me] == CTAS * call ->
           for (item : 0 .. 2 * PIECES - 1) {
               assert(wrote[item] >= call) /* nothing is left out */
           }
           item = 0
        :: else
        fi;
        mine = 0; goes = 0
    }
}

proctype cta_of(byte me; byte cta)
{
    byte call, mine, goes, item;
    bit last;

    for (call : 1 .. CALLS) {
        ended[me] >= CTAS * (call - 1); /* a kernel begins when the last has ended */
        decide();
        meet();
        if
        :: !KEEPS(COUNTED_AFTER_TAKING) -> count()
        :: else
        fi;
        if
        :: goes == DIRECT -> direct_mode()
        :: else -> staged_mode()
        fi;
        if
        :: KEEPS(COUNTED_AFTER_TAKING) -> count()
        :: else
        fi;
        end_call()
    }
}

proctype registrar(byte me)
{
    ready[me] = 1
}

init
{
    byte r, k;

    atomic {
        choose_rules();
        c_code {
            now.both = getenv("BOTH") != 0;
            now.twice = getenv("TWICE") != 0;
        };
        ready[1] = !both;
        for (r : 0 .. 1) {
            if
            :: !ready[r] -> run registrar(r)
            :: else
            fi;
            for (k : 0 .. CTAS - 1) {
                run cta_of(r, k)
            }
        }
    }
}
