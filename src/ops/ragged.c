#include "ops/ragged.h"

#define MOST_BYTES ((size_t)1 << 47)
enum { MOST_SLICES = 1 << 20 };

static oriel_status name_negative(const oriel_ragged *r, size_t i)
{
    static const char *const names[] = {"input_offsets", "send_sizes", "output_offsets",
                                        "recv_sizes"};
    const int64_t values[] = {r->input_offsets[i], r->send_sizes[i], r->output_offsets[i],
                              r->recv_sizes[i]};
    int a = 0;

    while (values[a] >= 0)
        a++;
    return oriel_fail(ORIEL_ERR_INVALID, "%s[%zu] is %lld", names[a], i, (long long)values[a]);
}

static oriel_status check_sizes(const oriel_ragged *r, size_t i)
{
    int64_t from = r->input_offsets[i];
    int64_t rows = r->send_sizes[i];

    if ((from | rows | r->output_offsets[i] | r->recv_sizes[i]) < 0)
        return name_negative(r, i);
    if ((uint64_t)from > r->send_rows || (uint64_t)rows > r->send_rows - (uint64_t)from)
        return oriel_fail(
            ORIEL_ERR_INVALID,
            "input_offsets[%zu] is %lld and send_sizes[%zu] is %lld, but send has %zu "
            "rows",
            i, (long long)from, i, (long long)rows, r->send_rows);
    return ORIEL_OK;
}

/* A product, since small calls feel a division. */
static int too_large(size_t rows, size_t row)
{
    size_t bytes;

    return __builtin_mul_overflow(rows, row > 0 ? row : 1, &bytes) || bytes > MOST_BYTES;
}

static oriel_status check_buffers(const oriel_op *op, size_t row)
{
    const oriel_ragged *r = op->ragged;
    uintptr_t send = (uintptr_t)op->send;
    uintptr_t recv = (uintptr_t)op->recv;

    if (too_large(r->send_rows, row))
        return oriel_fail(ORIEL_ERR_INVALID, "send_rows is %zu rows of %zu bytes: too large",
                          r->send_rows, row);
    if (too_large(r->recv_rows, row))
        return oriel_fail(ORIEL_ERR_INVALID, "recv_rows is %zu rows of %zu bytes: too large",
                          r->recv_rows, row);
    if (op->send == NULL && r->send_rows * row > 0)
        return oriel_fail(ORIEL_ERR_INVALID, "send is NULL");
    if (op->recv == NULL && r->recv_rows * row > 0)
        return oriel_fail(ORIEL_ERR_INVALID, "recv is NULL");
    if (send != recv && send < recv + r->recv_rows * row && recv < send + r->send_rows * row)
        return oriel_fail(ORIEL_ERR_INVALID, "send and recv overlap without being in place");
    return ORIEL_OK;
}

oriel_status oriel_ragged_check(const oriel_op *op, int n)
{
    const oriel_ragged *r = op->ragged;
    size_t size = oriel_dtype_size(op->dtype);
    oriel_status st;

    if (r == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "ragged is NULL");
    if (r->struct_size != sizeof *r)
        return oriel_fail(ORIEL_ERR_INVALID, "struct_size is %zu; use ORIEL_RAGGED_INIT",
                          r->struct_size);
    if (r->slices < 1 || r->slices > MOST_SLICES)
        return oriel_fail(ORIEL_ERR_INVALID, "slices is %d; 1 to %d are possible", r->slices,
                          MOST_SLICES);
    if (too_large(r->row, size))
        return oriel_fail(ORIEL_ERR_INVALID, "row is %zu elements of %zu bytes: too large", r->row,
                          size);
    if (r->input_offsets == NULL || r->send_sizes == NULL || r->output_offsets == NULL ||
        r->recv_sizes == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL",
                          r->input_offsets == NULL    ? "input_offsets"
                          : r->send_sizes == NULL     ? "send_sizes"
                          : r->output_offsets == NULL ? "output_offsets"
                                                      : "recv_sizes");
    st = check_buffers(op, r->row * size);
    for (size_t i = 0; st == ORIEL_OK && i < (size_t)n * (size_t)r->slices; i++)
        st = check_sizes(r, i);
    return st;
}

size_t oriel_ragged_sent(const oriel_op *op, int n)
{
    size_t rows = 0;

    for (size_t i = 0; i < (size_t)n * (size_t)op->ragged->slices; i++)
        rows += (size_t)op->ragged->send_sizes[i];
    return rows * oriel_op_block(op);
}
