/* Functions that tests/jax/kernels/test_op.py loads. */
#include <oriel/op.h>

/* Adds up all ranks' x, times `factor`, to y; the other result says what was seen. */
ORIEL_OP oriel_status add_up(oriel_call *call)
{
    const oriel_call_buffer *x = &call->operands[0];
    const oriel_call_attribute *factor = oriel_call_find(call, "factor");
    const oriel_call_attribute *title = oriel_call_find(call, "title");
    float *y = call->results[0].data;
    int64_t *seen = call->results[1].data;

    if (x->dtype != ORIEL_F32 || factor == NULL || factor->type != ORIEL_CALL_REAL)
        return oriel_call_fail(call, ORIEL_ERR_INVALID, "dtype %d, or no factor", (int)x->dtype);
    if (call->stream != NULL || call->struct_size != sizeof *call)
        return oriel_call_fail(call, ORIEL_ERR_INVALID, "a stream on a CPU");
    for (size_t i = 0; i < x->count; i++) {
        float sum = 0;

        for (int r = 0; r < call->size; r++)
            sum += ((const float *)oriel_call_peer(call, (const float *)x->data + i, r))[0];
        y[i] = (float)factor->real * sum;
    }
    seen[0] = call->rank;
    seen[1] = call->size;
    seen[2] = x->ndim;
    seen[3] = x->dims[x->ndim - 1];
    seen[4] =
        title != NULL && title->type == ORIEL_CALL_STRING ? (int64_t)strlen(title->string) : -1;
    seen[5] = oriel_call_find(call, "count")->integer;
    seen[6] = call->num_attributes;
    seen[7] =
        oriel_call_peer(call, &seen, 0) == NULL && oriel_call_peer(call, y, call->size) == NULL;
    return ORIEL_OK;
}

/* To the next rank and, after a barrier, on to the one after it. */
ORIEL_OP oriel_status two_on(oriel_call *call)
{
    const oriel_call_buffer *x = &call->operands[0];
    int next = (call->rank + 1) % call->size;
    oriel_status st;

    memcpy(call->results[0].peers[next], x->data, x->bytes);
    st = call->barrier(call);
    if (st != ORIEL_OK)
        return st;
    memcpy(call->results[1].peers[next], call->results[0].data, x->bytes);
    return ORIEL_OK;
}

ORIEL_OP oriel_status refuse(oriel_call *call)
{
    if (call->rank == 1)
        return oriel_call_fail(call, ORIEL_ERR_UNSUPPORTED, "rank %d has no wish to", call->rank);
    return call->barrier(call);
}
