/* How a thread waits on a GPU: part of oriel/kernel.h. Needs sm_80. */
#ifndef ORIEL_KERNEL_WAIT_H
#define ORIEL_KERNEL_WAIT_H

#include <oriel/detail/kernel_types.h>

#if defined(__CUDACC__)

ORIEL_FN uint64_t oriel_cuda_now(void)
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

ORIEL_FN uint64_t oriel_cuda_acquire(const uint64_t *word)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

ORIEL_FN uint32_t oriel_cuda_relaxed(const uint32_t *word)
{
    uint32_t value;

    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

ORIEL_FN void oriel_cuda_trouble(const oriel_frame *frame, int what, int64_t value)
{
    uint32_t word = (uint32_t)what | (uint32_t)value << 8;

    atomicCAS_system(frame->error, 0u, word);
}

/* Whether to give up. The abort word is the host's, far away: it is read last. */
ORIEL_FN int oriel_cuda_failed(const oriel_team *team)
{
    if (oriel_cuda_relaxed(team->frame->error) != 0)
        return 1;
    if (oriel_cuda_relaxed(team->frame->gone) != 0 || oriel_cuda_relaxed(team->frame->abort) != 0)
        oriel_cuda_trouble(team->frame, ORIEL_TROUBLE_ABORT, 0);
    else if (oriel_cuda_now() - team->started > team->frame->limit_ns)
        oriel_cuda_trouble(team->frame, ORIEL_TROUBLE_LATE, 0);
    else
        return 0;
    return 1;
}

/* Until *word >= value, acquire, system; bounded by abort word and deadline. */
ORIEL_FN int oriel_cuda_wait(const oriel_team *team, const uint64_t *word, uint64_t value)
{
    for (uint32_t turn = 0; oriel_cuda_acquire(word) < value; turn++) {
        if (turn % 64 == 63 && oriel_cuda_failed(team))
            return 1;
    }
    return 0;
}

#endif

#endif
