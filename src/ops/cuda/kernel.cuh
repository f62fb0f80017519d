/* The end of a person's kernel (see kernel_on.c), on any number of CTAs: its results leave
 * the arena; if it failed, or a peer did, they are poisoned and the host hears of it. */
#ifndef ORIEL_OPS_CUDA_KERNEL_CUH
#define ORIEL_OPS_CUDA_KERNEL_CUH

#include "ops/cuda/large.cuh"

DEVICE void poison_result(const device_result &r, lanes l)
{
    char *to = (char *)r.to;
    uint64_t packs = r.to % 16 == 0 ? r.bytes / 16 : 0;

    for (uint64_t i = l.first; i < packs; i += l.step)
        store_pack(to + 16 * i, ulonglong2{r.poison[0], r.poison[1]});
    for (uint64_t i = 16 * packs + l.first; i < r.bytes; i += l.step)
        to[i] = (char)(r.poison[i / 8 % 2] >> 8 * (i % 8));
}

DEVICE void finish(const device_call &c, const device_results &r)
{
    lanes l = {CTA * DEVICE_THREADS + THREAD, gridDim.x * DEVICE_THREADS};
    uint32_t said = load_relaxed((const uint32_t *)r.error);

    if (said != 0 && l.first == 0)
        fail(c, DEVICE_KERNEL, -1, said & 0xff, said >> 8);
    if (said != 0 || load_relaxed(&own_table(c)->error) != DEVICE_FINE) {
        say_revoked(c);
        for (uint64_t i = 0; i < r.n; i++)
            poison_result(r.results[i], l);
        return;
    }
    for (uint64_t i = 0; i < r.n; i++)
        copy_with(l, (char *)r.results[i].to, (const char *)r.results[i].from,
                  (uint32_t)r.results[i].bytes);
}

#endif
