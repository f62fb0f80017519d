/* Which member has the minimum or the maximum: two reductions, the second one over positions. No
 * kind of its own, so members that differ here are told of an all_reduce. */
#include <string.h>

#include "base/math.h"
#include "ops/op.h"
#include "ops/reduce/reduce.h"

enum { BLOCK = 2048 };

/* Adding zero gives equal elements equal bits: there is one NaN then, and one zero. */
static void canonical(char *out, const char *in, size_t count, oriel_dtype dtype)
{
    static const char zeros[BLOCK];
    const void *src[] = {in, zeros};

    oriel_reduce_elements(out, src, 2, count, dtype, ORIEL_SUM);
}

/* Writes `index` where this member has what the result is, else `n`, which is nobody's. */
static void locate(const char *send, const char *recv, int32_t *loc, size_t count,
                   oriel_dtype dtype, int index, int n)
{
    size_t size = oriel_dtype_size(dtype);
    char own[BLOCK];
    char best[BLOCK];

    for (size_t at = 0; at < count; at += BLOCK / size) {
        size_t here = oriel_least(BLOCK / size, count - at);

        canonical(own, send + at * size, here, dtype);
        canonical(best, recv + at * size, here, dtype);
        for (size_t i = 0; i < here; i++)
            loc[at + i] = memcmp(own + i * size, best + i * size, size) == 0 ? index : n;
    }
}

/* `loc` is written while both are still read. */
static int overlaps(const int32_t *loc, const void *other, size_t count, oriel_dtype dtype)
{
    uintptr_t at = (uintptr_t)loc;
    uintptr_t from = (uintptr_t)other;

    return at < from ? from - at < count * sizeof *loc
                     : at - from < count * oriel_dtype_size(dtype);
}

static oriel_status check(const void *send, const void *recv, const int32_t *loc, size_t count,
                          oriel_dtype dtype, oriel_redop redop)
{
    if (redop != ORIEL_MIN && redop != ORIEL_MAX)
        return oriel_fail(ORIEL_ERR_INVALID, "redop is %d (%s); a place is known of min and max",
                          (int)redop, oriel_redop_name(redop));
    if (count > 0 && loc == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "loc is NULL");
    if (count > 0 && send == recv)
        return oriel_fail(ORIEL_ERR_INVALID, "send is recv: it is read again after the reduction");
    if (overlaps(loc, send, count, dtype) || overlaps(loc, recv, count, dtype))
        return oriel_fail(ORIEL_ERR_INVALID, "loc overlaps %s",
                          overlaps(loc, send, count, dtype) ? "send" : "recv");
    return ORIEL_OK;
}

oriel_status oriel_all_reduce_loc(oriel_group *group, int rank, const void *send, void *recv,
                                  int32_t *loc, size_t count, oriel_dtype dtype, oriel_redop redop)
{
    oriel_status st = check(send, recv, loc, count, dtype, redop);

    if (st == ORIEL_OK)
        st = oriel_all_reduce(group, rank, send, recv, count, dtype, redop);
    if (st != ORIEL_OK) {
        if (st != ORIEL_ERR_INVALID)
            oriel_poison(loc, count, ORIEL_S32);
        return st;
    }
    locate(send, recv, loc, count, dtype, oriel_group_index(group, rank), oriel_group_size(group));
    st = oriel_all_reduce(group, rank, loc, loc, count, ORIEL_S32, ORIEL_MIN);
    if (st != ORIEL_OK)
        oriel_poison(recv, count, dtype);
    return st;
}
