/* Where a cell's block comes from, as in make_cell of src/core/protocol/cell.c: from the
 * pool of the group's first member, of which others may use the lower half alone,
 * else from the pool of who makes the cell. Does a rank that is in one call always
 * get on, whatever the others wait for?
 *
 * Four ranks and five groups of two. The first two ranks are in a call with each
 * other, and only then turn to the calls that the other two have started, whose
 * groups they are first in. Two started calls are stepped in any order. */

#include "rules.pml"

#define HALF_IS_THE_OWNERS 1

#define CALLS  5
#define BLOCKS 2        /* of each rank */

#define NOT_MADE 0
#define MADE     1
#define JOINED   2      /* by both members */

bit taken[4 * BLOCKS];
byte stage[CALLS];
byte block[CALLS];

/* The lowest free block is taken, below this limit. */
#define LIMIT(r)   ((r) == me || !KEEPS(HALF_IS_THE_OWNERS) -> BLOCKS : BLOCKS / 2)
#define LOWEST(r)  (!taken[(r) * BLOCKS] -> 0 : (!taken[(r) * BLOCKS + 1] -> 1 : BLOCKS))
#define HAS_ROOM(r) (LOWEST(r) < LIMIT(r))

inline make(c, r)
{
    block[c] = (r) * BLOCKS + LOWEST(r);
    taken[block[c]] = 1;
    stage[c] = MADE
}

/* The block goes back at once: when both are there nothing can hold it up. */
inline join(c)
{
    taken[block[c]] = 0;
    block[c] = 0;
    stage[c] = JOINED
}

/* Enters call c of the group {first, ...}; one step, as under the bucket's lock. */
#define ENTER(c, first, in)                                                    \
    :: d_step { !in && stage[c] == MADE -> join(c); in = 1 }                   \
    :: d_step { !in && stage[c] == NOT_MADE && HAS_ROOM(first) -> make(c, first); in = 1 } \
    :: d_step { !in && stage[c] == NOT_MADE && !HAS_ROOM(first) && HAS_ROOM(me) -> \
                make(c, me); in = 1 }

inline call(c, first)
{
    in = 0;
    do
    ENTER(c, first, in)
    :: in && stage[c] == JOINED -> break
    od
}

/* Ranks 0 and 1: call 0 together; then with 2, then with 3. */
proctype blocking(byte me)
{
    bit in;

    call(0, 0);
    call(1 + me, me);
    call(3 + me, me)
}

/* Ranks 2 and 3: one call with 0 and one with 1, both started. */
proctype starting(byte me)
{
    bit in, in_second;

    do
    ENTER(2 * me - 3, 0, in)
    ENTER(2 * me - 2, 1, in_second)
    :: in && in_second && stage[2 * me - 3] == JOINED && stage[2 * me - 2] == JOINED -> break
    od
}

init
{
    atomic {
        choose_rules();
        run blocking(0);
        run blocking(1);
        run starting(2);
        run starting(3)
    }
}
