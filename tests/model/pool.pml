/* Where a cell's block comes from, as in make_cell of src/core/protocol/cell.c: from the
 * pool of the group's first member, of which others may use the lower half alone,
 * else from the pool of the rank that makes the cell. Does a rank that is in one call
 * always get on, whatever the others wait for?
 *
 * Four ranks and five groups of two. Two started calls are stepped in any order. The first
 * two ranks are in a call with each other; the calls that each has with one of the other two
 * - were started by those, whose groups the first two are first in, and are joined after it
 *   (calls from XLA: nobody knows what the others have begun);
 * - ORDERED: were started by the first two before it, and the others join after it. The lane
 *   shows which calls both have begun. */

#ifndef ORDERED
#define ORDERED 0
#endif

#include "rules.pml"

#define HALF_IS_THE_OWNERS 1
#define LAST_IS_FOR_BEGUN  2

#define CALLS  5
#define BLOCKS 2        /* of each rank */

#define NOT_MADE 0
#define MADE     1
#define JOINED   2      /* by both members */

bit taken[4 * BLOCKS];
byte stage[CALLS];
byte block[CALLS];

byte begun[CALLS]; /* by so many members */

/* The lowest free block is taken, below this limit. */
#define IS_EARLY(c)  (ORDERED && begun[c] < 2)
#define ALL_BEGUN(c) (ORDERED && begun[c] == 2)
#define OWN(c)       (IS_EARLY(c) && KEEPS(LAST_IS_FOR_BEGUN) -> BLOCKS - 1 : BLOCKS)
#define LIMIT(c, r)                                                            \
    (ALL_BEGUN(c) || !KEEPS(HALF_IS_THE_OWNERS) -> BLOCKS :                    \
     ((r) == me -> OWN(c) : BLOCKS / 2))
#define LOWEST(r)  (!taken[(r) * BLOCKS] -> 0 : (!taken[(r) * BLOCKS + 1] -> 1 : BLOCKS))
#define HAS_ROOM(c, r) (LOWEST(r) < LIMIT(c, r))

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
    :: d_step { !in && stage[c] == NOT_MADE && HAS_ROOM(c, first) -> make(c, first); in = 1 } \
    :: d_step { !in && stage[c] == NOT_MADE && !HAS_ROOM(c, first) && HAS_ROOM(c, me) -> \
                make(c, me); in = 1 }

inline call(c, first)
{
    in = 0;
    begun[c]++;
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

/* Ranks 0 and 1: two calls started, with the rank that is two further, then call 0 together.
 * Started calls are stepped meanwhile. */
proctype first(byte me)
{
    bit in, in_second, in_both;

    begun[1 + 2 * me]++;
    begun[2 + 2 * me]++;
    do
    ENTER(1 + 2 * me, me, in)
    ENTER(2 + 2 * me, me, in_second)
    :: begun[0]++; break
    od;
    do
    ENTER(1 + 2 * me, me, in)
    ENTER(2 + 2 * me, me, in_second)
    ENTER(0, 0, in_both)
    :: in && in_second && in_both && stage[0] == JOINED && stage[1 + 2 * me] == JOINED &&
       stage[2 + 2 * me] == JOINED -> break
    od
}

/* Ranks 2 and 3: the others' calls, after that. */
proctype later(byte me)
{
    bit in;

    stage[0] == JOINED;
    call(2 * me - 3, me - 2);
    call(2 * me - 2, me - 2)
}

init
{
    atomic {
        choose_rules();
        if
        :: ORDERED -> run first(0); run first(1); run later(2); run later(3)
        :: else -> run blocking(0); run blocking(1); run starting(2); run starting(3)
        fi
    }
}
