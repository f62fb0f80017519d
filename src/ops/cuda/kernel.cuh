/* What comes before and after a person's kernel (see kernel_on.c), each on one CTA: the
 * meetings that let others touch a rank's buffers and end that. What all have mapped is given
 * to the kernel as it is: direct. If anything is not, the kernel of every rank copies its
 * operands to its arena and its results from there. */
#ifndef ORIEL_OPS_CUDA_KERNEL_CUH
#define ORIEL_OPS_CUDA_KERNEL_CUH

#include "ops/cuda/large.cuh"

DEVICE device_arena *arena_of(const device_call &c, const device_begin &b, uint32_t member)
{
    return (device_arena *)(c.heap[member] + b.arena_at);
}

/* Whether all members can reach this rank's buffers. Where nothing else is possible it
 * waits for that. All threads; the same for all. */
DEVICE bool all_reachable(const device_call &c, const device_begin &b)
{
    bool ready = (c.flags & DEVICE_DIRECT) != 0;

    for (uint64_t i = THREAD; ready && !all_plain(c) && i < b.n; i += DEVICE_THREADS) {
        const device_buffer &buffer = b.buffers[i];
        auto mapped = [&] { return is_ready(c, buffer.window, buffer.generation); };

        ready = c.flags & DEVICE_NO_STAGE ? spin(c, c.index, mapped) == DEVICE_FINE : mapped();
    }
    return __syncthreads_and(ready);
}

/* Orders what all threads of the CTA did before the last barrier, for who speaks next; or
 * what the speakers have seen, for all after the next barrier. */
DEVICE void speak_in_order(const device_call &c)
{
    if (speaks(c) && c.flags & DEVICE_ONE_GPU)
        __threadfence();
    else if (speaks(c))
        __threadfence_system();
}

/* Before this rank comes: where its buffers are, and nothing of the last call. Nobody looks
 * there: all kernels of the last call had ended when its last meeting had. */
DEVICE void show(const device_call &c, const device_begin &b)
{
    const uint64_t words = (sizeof(device_arena) - sizeof(device_arena::shown)) / 8;
    device_arena *own = arena_of(c, b, c.index);

    for (uint64_t i = THREAD; i < words; i += DEVICE_THREADS)
        ((uint64_t *)own)[i] = 0;
    for (uint64_t i = THREAD; i < b.n; i += DEVICE_THREADS)
        own->shown[i] = device_shown{b.buffers[i].address, b.buffers[i].window};
    __syncthreads();
    speak_in_order(c);
}

/* Where this rank reaches buffer i of a member. */
DEVICE char *reach_buffer(const device_call &c, const device_begin &b, uint32_t member, uint64_t i)
{
    ulonglong2 shown;

    if (member == c.index)
        return (char *)b.buffers[i].address;
    shown = load_pack(&arena_of(c, b, member)->shown[i]);
    return reach(c, member, c.plain >> member & 1 ? shown.x : shown.y);
}

DEVICE void fill_frame(const device_call &c, const device_begin &b, bool direct)
{
    char **peers = (char **)b.peers;

    for (uint64_t i = THREAD; i < b.n * c.n; i += DEVICE_THREADS) {
        uint32_t member = (uint32_t)(i % c.n);

        peers[i] = direct ? reach_buffer(c, b, member, i / c.n)
                          : (char *)arena_of(c, b, member) + b.buffers[i / c.n].at;
    }
    for (uint64_t i = THREAD; i < b.n; i += DEVICE_THREADS)
        ((uint64_t *)b.homes)[i] = b.buffers[i].address;
    if (THREAD == 0)
        *(uint64_t *)b.staged = direct ? 0 : b.homes;
}

DEVICE void kernel_begin(const device_call &c, const device_begin &b)
{
    __shared__ meeting m;
    bool direct = all_reachable(c, b);
    uint32_t error;

    show(c, b);
    error = enter(c, m, direct);
    speak_in_order(c);
    __syncthreads();
    if (error == DEVICE_FINE)
        fill_frame(c, b, m.direct);
    else if (THREAD == 0)
        arena_of(c, b, c.index)->error = DEVICE_NOT_BEGUN;
    leave(c, m, error);
}

DEVICE void poison_result(const device_result &r)
{
    char *to = (char *)r.to;
    uint64_t packs = r.to % 16 == 0 ? r.bytes / 16 : 0;

    for (uint64_t i = THREAD; i < packs; i += DEVICE_THREADS)
        store_pack(to + 16 * i, ulonglong2{r.poison[0], r.poison[1]});
    for (uint64_t i = 16 * packs + THREAD; i < r.bytes; i += DEVICE_THREADS)
        to[i] = (char)(r.poison[i / 8 % 2] >> 8 * (i % 8));
}

/* What the kernel said is wrong, if it began. */
DEVICE void hear(const device_call &c, uint32_t said)
{
    if ((said & 0xff) == DEVICE_TROUBLE_ABORT)
        swap_if(&own_table(c)->error, DEVICE_FINE, DEVICE_ABORTED);
    else if (said != 0)
        fail(c, DEVICE_KERNEL, -1, said & 0xff, said >> 8);
}

/* Meets the others, whose kernels have then ended as well; false: somebody failed. */
DEVICE bool meet_again(const device_call &c, uint32_t said)
{
    __shared__ meeting m;
    bool fine;

    if (THREAD == 0)
        hear(c, said);
    resume(c, m);
    fine = !__syncthreads_or(load_relaxed(&own_table(c)->error) != DEVICE_FINE);
    fine = fine && sync(c, m) == DEVICE_FINE;
    if (!fine)
        withdraw(c, m);
    else if (speaks(c))
        own_counts(c)->synced = m.speakers[THREAD].counts.synced;
    return fine;
}

DEVICE void kernel_end(const device_call &c, const device_end &e)
{
    uint32_t said = load_relaxed((const uint32_t *)e.error);
    bool fine = said != DEVICE_NOT_BEGUN && meet_again(c, said);

    for (uint64_t i = 0; i < e.n && !fine; i++)
        poison_result(e.results[i]);
}

#endif
