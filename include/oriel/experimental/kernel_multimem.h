/* EXPERIMENTAL, may change or go: multicast in kernels, where an NVLink switch adds. It has run on
 * no hardware: no launcher of this library gives a kernel a multicast address yet, so that what
 * runs are the loads and stores without one. */
#ifndef ORIEL_KERNEL_MULTIMEM_H
#define ORIEL_KERNEL_MULTIMEM_H

#include <oriel/kernel.h>

/* The one address behind which all ranks' memory at `pointer` is, where the hardware
 * has multicast (sm_90 and NVLink); NULL elsewhere: keep a path without it. Sums taken
 * there have no fixed order, so their bits may differ from run to run. */
ORIEL_FN void *oriel_multimem(const oriel_team *team, const volatile void *pointer)
{
    const oriel_buffer *buffer = oriel_buffer_of(team, pointer);

    if (!buffer || !buffer->multimem)
        return (void *)0;
    return (char *)buffer->multimem +
           ((uint64_t)pointer - (uint64_t)buffer->peers[team->frame->rank]);
}

ORIEL_FN int oriel_has_multimem(const oriel_team *team, const volatile void *pointer)
{
    return oriel_multimem(team, pointer) != (void *)0;
}

/* By one thread, at a pointer into an operand or result that is aligned to 16 bytes: the sum
 * of all ranks' four floats there; without multicast, by loads from each, in rank order.
 * Relaxed, system. */
ORIEL_FN void oriel_multimem_load_sum(const oriel_team *team, const float *pointer, float sums[4])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const void *multimem = oriel_multimem(team, pointer);

    if (multimem) {
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
                     : "l"(multimem)
                     : "memory");
        return;
    }
#endif
    for (int r = 0; r < team->frame->size; r++) {
        const volatile float *from = (const volatile float *)oriel_peer_address(team, pointer, r);

        for (int i = 0; i < 4; i++)
            sums[i] = r == 0 ? from[i] : sums[i] + from[i];
    }
}

/* The same for a store on all ranks. */
ORIEL_FN void oriel_multimem_store(const oriel_team *team, float *pointer, const float values[4])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    void *multimem = oriel_multimem(team, pointer);

    if (multimem) {
        asm volatile(
            "multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(multimem),
            "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
            : "memory");
        return;
    }
#endif
    for (int r = 0; r < team->frame->size; r++) {
        volatile float *to = (volatile float *)oriel_peer_address(team, pointer, r);

        for (int i = 0; i < 4; i++)
            to[i] = values[i];
    }
}

#endif
