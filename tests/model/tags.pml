/* Which calls over the whole world belong together: by tag and count, as python/oriel/_calls
 * names and orders them.
 *
 * Each rank has a program of its own. One makes two calls of tag A, the transpose of the first and
 * a call of tag B in one module, the other the first call and its transpose in one module and the
 * rest in another. XLA makes calls that do not need each other in any order. The nth call that a
 * rank's program makes with a tag meets the nth of the others, and no call is refused. */

#ifndef ROUNDS
#define ROUNDS 2        /* how often the programs run */
#endif

#define N 2

#include "rules.pml"

#define ORDERED_WITHIN_A_TAG      1
#define COUNTED_BY_TAG            2
#define COMPARED_ALONE            3
#define TRANSPOSES_HAVE_THEIR_TAG 4

#define A_1    0
#define A_2    1
#define T_1    2        /* the transpose of A_1 */
#define B      3
#define CALLS  4
#define TAGS   3
#define COUNTS (4 * ROUNDS)
#define ALL    ((1 << N) - 1)
#define NOWHERE 255

byte count[N * CALLS];  /* of a rank: by tag */
byte came[TAGS * COUNTS];
byte record[TAGS * COUNTS];
byte what[TAGS * COUNTS];  /* of the first to come: which call, in which round */
bit other[TAGS * COUNTS];  /* another rank brought another */

#define BIT(mask, i) ((mask) >> (i) & 1)

/* The calls of the eth module of a rank. */
#define MODULES(r)    ((r) == 0 -> 1 : 2)
#define CALLS_OF(r, e)                                                         \
    ((r) == 0 -> 15 : ((e) == 0 -> 1 << A_1 | 1 << T_1 : 1 << A_2 | 1 << B))

#define TAG(c)        ((c) == B -> 2 : ((c) == T_1 && KEEPS(TRANSPOSES_HAVE_THEIR_TAG) -> 1 : 0))
#define COUNTER(c)    (r * CALLS + (KEEPS(COUNTED_BY_TAG) -> TAG(c) : (c)))
#define RECORD(c)                                                              \
    (((c) == B -> 2 : (c) == T_1) + (KEEPS(COMPARED_ALONE) -> 0 : 4 * CALLS_OF(r, e)))

/* What a call takes the result of: a transpose its call's, and the later call of a tag that of the
 * earlier one in its module. */
#define LATER(c)                                                               \
    (!KEEPS(ORDERED_WITHIN_A_TAG) -> 0 :                                       \
     ((c) == A_2 -> 1 << A_1 :                                                 \
      ((c) == T_1 && !KEEPS(TRANSPOSES_HAVE_THEIR_TAG) -> 1 << A_2 : 0)))
#define NEEDS(c) ((LATER(c) | ((c) == T_1 -> 1 << A_1 : 0)) & CALLS_OF(r, e))

inline arrive(c)
{
    atomic {
        cell = TAG(c) * COUNTS + count[COUNTER(c)];
        count[COUNTER(c)]++;
        if
        :: came[cell] == 0 -> record[cell] = RECORD(c); what[cell] = round * CALLS + c
        :: else -> assert(record[cell] == RECORD(c)) /* else refused */
        fi;
        other[cell] = other[cell] || what[cell] != round * CALLS + c;
        came[cell] = came[cell] | 1 << r;
        at[c] = cell;
        made = made | 1 << c;
        cell = 0
    }
}

#define CALL(c)                                                                \
    :: BIT(CALLS_OF(r, e) & ~made, c) && !(NEEDS(c) & ~done) -> arrive(c)      \
    :: BIT(made & ~done, c) && came[at[c]] == ALL ->                           \
       d_step { assert(!other[at[c]]); done = done | 1 << c }

proctype rank(byte r)
{
    byte round, e, made, done, cell;
    byte at[CALLS];

    for (round : 0 .. ROUNDS - 1) {
        for (e : 0 .. MODULES(r) - 1) {
            do
            CALL(A_1)
            CALL(A_2)
            CALL(T_1)
            CALL(B)
            :: atomic { done == CALLS_OF(r, e) -> made = 0; done = 0; break }
            od
        }
    }
}

init
{
    atomic {
        choose_rules();
        run rank(0);
        run rank(1)
    }
}
