/* What comes before and after a person's kernel (see kernel_on.c), each on one CTA: the
 * meetings that let others touch a rank's buffers and end that. What all have mapped is given
 * to the kernel as it is: direct. If anything is not, the kernel of every rank copies its
 * operands to its arena and its results from there. */
#ifndef ORIEL_OPS_CUDA_KERNELS_KERNEL_CUH
#define ORIEL_OPS_CUDA_KERNELS_KERNEL_CUH

#include "ops/cuda/kernels/large.cuh"

DEVICE device_arena *arena_of(const device_call &c, const device_begin &b, uint32_t member)
{
    return (device_arena *)(c.heap[member] + b.arena_at);
}

/* The part of a thread; CTAs of such kernels have any number of threads. */
#define FOR_PART(i, n) for (uint64_t i = THREAD; i < (n); i += blockDim.x)

/* Whether all members can reach this rank's buffers. Where nothing else is possible it
 * waits for that. All threads; the same for all. */
DEVICE bool all_reachable(const device_call &c, const device_begin &b)
{
    bool ready = (c.flags & DEVICE_DIRECT) != 0;

    if (all_plain(c))
        return ready;
    FOR_PART(i, ready ? b.n : 0)
    {
        const device_buffer &buffer = b.buffers[i];
        auto mapped = [&] { return is_ready(c, buffer.window, buffer.generation); };

        ready &= c.flags & DEVICE_NO_STAGE ? spin(c, c.index, mapped) == DEVICE_FINE : mapped();
    }
    return __syncthreads_and(ready);
}

/* Before this rank comes: where its buffers are, beyond the two that enter() exchanges. */
DEVICE void show(const device_call &c, const device_begin &b)
{
    FOR_PART(i, b.n)
    {
        arena_of(c, b, c.index)->shown[i] = device_shown{b.buffers[i].address, b.buffers[i].window};
    }
    __syncthreads();
    __threadfence_system();
}

/* Where this rank reaches buffer i of a member. */
DEVICE char *reach_buffer(const device_call &c, const device_begin &b, const meeting &m,
                          uint32_t member, uint64_t i)
{
    ulonglong2 shown;

    if (i < 2)
        return i == 0 ? (char *)m.send[member] : m.recv[member];
    if (member == c.index)
        return (char *)b.buffers[i].address;
    shown = load_pack(&arena_of(c, b, member)->shown[i]);
    return reach(c, member, c.plain >> member & 1 ? shown.x : shown.y);
}

DEVICE void tell_kernel(const device_call &c, const device_begin &b, const meeting &m)
{
    FOR_PART(i, b.n * c.n)
    {
        uint32_t member = (uint32_t)(i % c.n);
        uint64_t buffer = i / c.n;

        ((char **)b.peers)[i] = m.direct ? reach_buffer(c, b, m, member, buffer)
                                         : (char *)arena_of(c, b, member) + b.buffers[buffer].at;
    }
    FOR_PART(i, m.direct ? 0 : b.n)
    {
        ((uint64_t *)b.homes)[i] = b.buffers[i].address;
    }
    if (THREAD == 0)
        *(uint64_t *)b.staged = m.direct ? 0 : b.homes;
}

DEVICE void kernel_begin(const device_call &c, const device_begin &b)
{
    __shared__ meeting m;
    bool direct = all_reachable(c, b);
    uint32_t error;

    if (b.n > 2)
        show(c, b);
    error = enter(c, m, direct);
    if (b.n > 2) {
        __threadfence_system();
        __syncthreads();
    }
    if (error == DEVICE_FINE) {
        /* Only now: what waits for this one's end keeps others from being resident. */
        let_next_begin();
        tell_kernel(c, b, m);
    }
    if (error != DEVICE_FINE && THREAD == 0)
        *(uint64_t *)b.staged = DEVICE_NOT_MET;
    leave(c, m, error);
}

DEVICE void poison_result(const device_result &r)
{
    char *to = (char *)r.to;
    uint64_t packs = r.to % 16 == 0 ? r.bytes / 16 : 0;

    FOR_PART(i, packs)
    {
        store_pack(to + 16 * i, ulonglong2{r.poison[0], r.poison[1]});
    }
    FOR_PART(k, r.bytes - 16 * packs)
    {
        uint64_t i = 16 * packs + k;

        to[i] = (char)(r.poison[i / 8 % 2] >> 8 * (i % 8));
    }
}

/* What the kernel said is wrong. */
SLOW void hear(const device_call &c, uint32_t said)
{
    if ((said & 0xff) == DEVICE_TROUBLE_ABORT)
        swap_if(&own_table(c)->error, DEVICE_FINE, DEVICE_ABORTED);
    else
        fail(c, DEVICE_KERNEL, -1, said & 0xff, said >> 8);
}

/* For the next call: nobody looks there, since all kernels of this one have ended. */
DEVICE void clear(device_arena *own)
{
    FOR_PART(i, (sizeof(device_arena) - sizeof(device_arena::shown)) / 8)
    {
        ((uint64_t *)own)[i] = 0;
    }
}

/* Meets the others, whose kernels have then ended as well; false: somebody failed. */
DEVICE bool meet_again(const device_call &c, device_arena *own)
{
    __shared__ meeting m;
    uint32_t said = load_relaxed(&own->error);
    uint32_t error = load_relaxed(&own_table(c)->error);

    if (said != 0 && THREAD == 0)
        hear(c, said);
    resume(c, m);
    if (__syncthreads_or(said != 0 || error != DEVICE_FINE) || sync(c, m) != DEVICE_FINE) {
        withdraw(c, m);
        return false;
    }
    if (speaks(c))
        own_counts(c)->synced = m.speakers[THREAD].counts.synced;
    clear(own);
    return true;
}

DEVICE void kernel_end(const device_call &c, const device_end &e)
{
    bool met = *(const uint64_t *)e.staged != DEVICE_NOT_MET;
    bool fine = met && meet_again(c, (device_arena *)e.arena);

    for (uint64_t i = 0; i < e.n && !fine; i++)
        poison_result(e.results[i]);
}

/* ---- groups that span machines -------------------------------------------------------------- */

/* All ask for the same: span_compare was before. Others are met in the kernel itself, which
 * always has copies: the network reaches the arenas alone. */
DEVICE void kernel_span_begin(const device_call &c, const device_begin &b)
{
    bool fine = load_relaxed(&own_table(c)->error) == DEVICE_FINE;

    FOR_PART(i, b.n * c.n)
    {
        uint32_t member = (uint32_t)(i % c.n);
        char *copy = (char *)arena_of(c, b, member) + b.buffers[i / c.n].at;

        ((char **)b.peers)[i] = b.far >> member & 1 ? nullptr : copy;
    }
    FOR_PART(k, b.n)
    {
        ((uint64_t *)b.homes)[k] = b.buffers[k].address;
    }
    if (THREAD == 0)
        *(uint64_t *)b.staged = fine ? b.homes : DEVICE_NOT_MET;
}

/* The kernel's last barrier was its meeting with the others. */
DEVICE void kernel_span_end(const device_call &c, const device_end &e)
{
    device_arena *own = (device_arena *)e.arena;
    uint32_t said = load_relaxed(&own->error);
    uint32_t error = load_relaxed(&own_table(c)->error);
    bool met = *(const uint64_t *)e.staged != DEVICE_NOT_MET;

    if (said != 0 && THREAD == 0)
        hear(c, said);
    if (__syncthreads_or(said != 0 || error != DEVICE_FINE || !met)) {
        say_revoked(c);
        for (uint64_t i = 0; i < e.n; i++)
            poison_result(e.results[i]);
        return;
    }
    clear(own);
}

#endif
