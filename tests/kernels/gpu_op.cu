/* Host functions that tests/gpu/jax/jax_op.py loads, built by nvcc. */
#include <oriel/op.h>

enum { THREADS = 256, BLOCKS = 64, MOST_RANKS = 64 };

typedef struct parts {
    const float *at[MOST_RANKS];
} parts;

static int called;

/* How often any of them has been. */
extern "C" __attribute__((visibility("default"))) int times_called(void)
{
    return called;
}

static __global__ void add_up_kernel(parts x, int ranks, float factor, float *y, size_t n)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float sum = 0;

        for (int r = 0; r < ranks; r++)
            sum += x.at[r][i];
        y[i] = factor * sum;
    }
}

static __global__ void copy_kernel(float *to, const float *from, size_t n)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        to[i] = from[i];
}

/* What is promised for a GPU; a sentence, or NULL. */
static const char *wrong(const oriel_call *call)
{
    const oriel_call_buffer *x = &call->operands[0];
    const oriel_call_attribute *title = oriel_call_find(call, "title");
    cudaPointerAttributes place;

    if (call->stream == NULL || call->struct_size != sizeof *call || call->aborted == NULL)
        return "no stream, or another struct";
    if (call->size < 1 || call->size > MOST_RANKS || call->rank >= call->size)
        return "no such rank";
    if (x->dtype != ORIEL_F32 || x->ndim != 2 || (size_t)(x->dims[0] * x->dims[1]) != x->count)
        return "another operand";
    if (title == NULL || title->type != ORIEL_CALL_STRING || strcmp(title->string, "w\xc3\xb6rld"))
        return "no title";
    if (oriel_call_find(call, "count")->integer != -7 || call->num_attributes != 3)
        return "other attributes";
    for (int r = 0; r < call->size; r++) {
        if (cudaPointerGetAttributes(&place, x->peers[r]) != cudaSuccess ||
            place.type != cudaMemoryTypeDevice)
            return "a peer's operand is no device memory";
        if (oriel_call_peer(call, (float *)x->data + 1, r) != (float *)x->peers[r] + 1)
            return "a peer is elsewhere";
    }
    if (x->peers[call->rank] != x->data || call->failed((oriel_call *)call))
        return "the own operand is elsewhere, or it has failed";
    return NULL;
}

/* factor * the sum of all ranks' x. */
ORIEL_OP oriel_status add_up(oriel_call *call)
{
    const oriel_call_buffer *x = &call->operands[0];
    const char *what = wrong(call);
    parts all;

    called++;
    if (what != NULL)
        return oriel_call_fail(call, ORIEL_ERR_INVALID, "%s", what);
    for (int r = 0; r < call->size; r++)
        all.at[r] = (const float *)x->peers[r];
    add_up_kernel<<<BLOCKS, THREADS, 0, (cudaStream_t)call->stream>>>(
        all, call->size, (float)oriel_call_find(call, "factor")->real,
        (float *)call->results[0].data, x->count);
    return oriel_call_check(call, cudaGetLastError(), "launching add_up");
}

/* Writes to the next rank and, after a barrier, on to the one after it. */
ORIEL_OP oriel_status two_on(oriel_call *call)
{
    const oriel_call_buffer *x = &call->operands[0];
    int next = (call->rank + 1) % call->size;
    oriel_status st;

    called++;
    copy_kernel<<<BLOCKS, THREADS, 0, (cudaStream_t)call->stream>>>(
        (float *)call->results[0].peers[next], (const float *)x->data, x->count);
    st = call->barrier(call);
    if (st != ORIEL_OK)
        return st;
    copy_kernel<<<BLOCKS, THREADS, 0, (cudaStream_t)call->stream>>>(
        (float *)call->results[1].peers[next], (const float *)call->results[0].data, x->count);
    return oriel_call_check(call, cudaGetLastError(), "launching copy");
}

/* ---- what can go wrong ------------------------------------------------------------- */

ORIEL_OP oriel_status refuse(oriel_call *call)
{
    if (call->rank == 1)
        return oriel_call_fail(call, ORIEL_ERR_UNSUPPORTED, "rank %d has no wish to", call->rank);
    return call->barrier(call);
}

ORIEL_OP oriel_status no_status(oriel_call *call)
{
    return call->rank == 1 ? (oriel_status)99 : ORIEL_OK;
}

ORIEL_OP oriel_status nothing(oriel_call *call)
{
    (void)call;
    return ORIEL_OK;
}

/* A launch that cannot be, which nobody looks at; or does, with check=1. */
ORIEL_OP oriel_status bad_launch(oriel_call *call)
{
    copy_kernel<<<1, 4096, 0, (cudaStream_t)call->stream>>>(
        (float *)call->results[0].data, (const float *)call->operands[0].data, 1);
    if (oriel_call_find(call, "check")->integer != 0)
        return oriel_call_check(call, cudaGetLastError(), "launching copy");
    cudaGetLastError(); /* or the next call that this thread makes finds it */
    return ORIEL_OK;
}

/* One barrier more on rank 1. */
ORIEL_OP oriel_status uneven(oriel_call *call)
{
    oriel_status st = call->barrier(call);

    return st == ORIEL_OK && call->rank == 1 ? call->barrier(call) : st;
}

static __global__ void wait_kernel(const uint32_t *aborted)
{
    while (*(const volatile uint32_t *)aborted == 0) {
    }
}

/* Waits for what never comes, but for the failure: of rank 1, which does not wait. */
ORIEL_OP oriel_status waits(oriel_call *call)
{
    if (call->rank == 1)
        return oriel_call_fail(call, ORIEL_ERR_UNSUPPORTED, "rank 1 does not wait");
    wait_kernel<<<1, 1, 0, (cudaStream_t)call->stream>>>(call->aborted);
    return oriel_call_check(call, cudaGetLastError(), "launching wait");
}

static __global__ void fault_kernel(float *nowhere)
{
    *nowhere = 1;
}

/* A kernel that faults: the context of rank 1 is lost. */
ORIEL_OP oriel_status fault(oriel_call *call)
{
    if (call->rank == 1)
        fault_kernel<<<1, 1, 0, (cudaStream_t)call->stream>>>((float *)16);
    return oriel_call_check(call, cudaGetLastError(), "launching fault");
}
