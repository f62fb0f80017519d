/* An all-reduce as a host function: `nvcc` builds it for GPUs, `cc -x c` for CPUs.
 * Each rank adds up one slice of everybody's x; when all have, it fetches the other
 * slices from where they were added up. */
#include <oriel/op.h>

enum { MOST_RANKS = 64, THREADS = 512, MOST_BLOCKS = 256 };

/* Where each rank's part is: a kernel takes it by value. */
typedef struct parts {
    const float *at[MOST_RANKS];
} parts;

#ifdef __CUDACC__
static __global__ void add_up_kernel(parts x, int ranks, float *y, size_t n)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float sum = x.at[0][i];

        for (int r = 1; r < ranks; r++)
            sum += x.at[r][i];
        y[i] = sum;
    }
}

static oriel_status add_up(oriel_call *call, parts x, float *y, size_t n)
{
    size_t blocks = n / THREADS + 1;

    if (blocks > MOST_BLOCKS)
        blocks = MOST_BLOCKS;
    add_up_kernel<<<blocks, THREADS, 0, (cudaStream_t)call->stream>>>(x, call->size, y, n);
    return oriel_call_check(call, cudaGetLastError(), "launching add_up_kernel");
}

static oriel_status fetch(oriel_call *call, float *to, const float *from, size_t n)
{
    return oriel_call_check(call,
                            cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyDeviceToDevice,
                                            (cudaStream_t)call->stream),
                            "fetching a slice");
}

#else /* the same on a CPU */
static oriel_status add_up(oriel_call *call, parts x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = x.at[0][i];
        for (int r = 1; r < call->size; r++)
            y[i] += x.at[r][i];
    }
    return ORIEL_OK;
}

static oriel_status fetch(oriel_call *call, float *to, const float *from, size_t n)
{
    (void)call;
    memcpy(to, from, n * sizeof *to);
    return ORIEL_OK;
}
#endif

static oriel_status check(oriel_call *call)
{
#ifdef __CUDACC__
    const int gpu = 1;
#else
    const int gpu = 0;
#endif
    const oriel_call_buffer *x = &call->operands[0];

    if (x->dtype != ORIEL_F32 || call->results[0].count != x->count || call->size > MOST_RANKS)
        return oriel_call_fail(call, ORIEL_ERR_INVALID,
                               "x and y must be f32 of one size, for at most %d ranks", MOST_RANKS);
    if (gpu != (call->stream != NULL))
        return oriel_call_fail(call, ORIEL_ERR_UNSUPPORTED, "the library was built for %s",
                               gpu ? "GPUs" : "CPUs");
    return ORIEL_OK;
}

ORIEL_OP oriel_status all_reduce(oriel_call *call)
{
    const oriel_call_buffer *x = &call->operands[0];
    const oriel_call_buffer *y = &call->results[0];
    size_t n = x->count, ranks = (size_t)call->size, rank = (size_t)call->rank;
    size_t first = n * rank / ranks;
    parts slice;
    oriel_status st = check(call);

    if (st != ORIEL_OK)
        return st;
    for (size_t r = 0; r < ranks; r++)
        slice.at[r] = (const float *)x->peers[r] + first;
    st = add_up(call, slice, (float *)y->data + first, n * (rank + 1) / ranks - first);
    if (st == ORIEL_OK)
        st = call->barrier(call); /* on a GPU: what is enqueued next waits for all ranks */
    for (size_t k = 1; k < ranks && st == ORIEL_OK; k++) {
        size_t r = (rank + k) % ranks;
        size_t at = n * r / ranks;

        st = fetch(call, (float *)y->data + at, (const float *)y->peers[r] + at,
                   n * (r + 1) / ranks - at);
    }
    return st;
}
