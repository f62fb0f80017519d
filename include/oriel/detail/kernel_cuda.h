/* How a team meets on a GPU, begins and ends: part of oriel/kernel.h. */
#ifndef ORIEL_KERNEL_CUDA_H
#define ORIEL_KERNEL_CUDA_H

#include <oriel/detail/kernel_wait.h>

#if defined(__CUDACC__)

/* All threads of all blocks: the blocks count themselves, and each waits until all of
 * this round have. The counter starts at 0 with the launch and is never reset, so the
 * round follows from it. Thread 0 releases and acquires for its block, which
 * __syncthreads joins to it. Needs all blocks to be resident. */
ORIEL_FN int oriel_cuda_sync(const oriel_team *team)
{
    uint64_t blocks = (uint64_t)gridDim.x;
    int failed = 0;

#if defined(ORIEL_HAS_GIN)
    if (team->frame->gin && team->thread == 0)
        failed = oriel_gin_settle(*team);
#endif
    __syncthreads();
    if (threadIdx.x == 0 && blocks > 1) {
        unsigned long long *count = (unsigned long long *)team->frame->sync;
        uint64_t before;
        uint64_t goal;

        __threadfence();
        before = atomicAdd(count, 1ull);
        goal = (before / blocks + 1) * blocks;
        failed |= oriel_cuda_wait(team, team->frame->sync, goal);
        __threadfence();
    }
    return __syncthreads_or(failed);
}

/* By the first block: its threads tell one rank each, and wait for one each. */
ORIEL_FN int oriel_cuda_meet(const oriel_team *team)
{
    const oriel_frame *frame = team->frame;
    uint64_t *mine = oriel_arrivals(frame->boards[frame->rank]);
    int failed = 0;

#if defined(ORIEL_HAS_GIN)
    if (frame->gin)
        return oriel_gin_meet(*team);
#endif
    for (uint32_t r = threadIdx.x; r < (uint32_t)frame->size; r += blockDim.x)
        asm volatile("fence.acq_rel.sys; st.release.sys.global.u64 [%0], %1;" ::"l"(
                         oriel_arrivals(frame->boards[r]) + frame->rank),
                     "l"(team->epoch)
                     : "memory");
    for (uint32_t r = threadIdx.x; r < (uint32_t)frame->size; r += blockDim.x)
        failed |= oriel_cuda_wait(team, mine + r, team->epoch);
    return failed;
}

ORIEL_FN int oriel_cuda_barrier(oriel_team *team)
{
    int failed = oriel_cuda_sync(team);

    team->epoch++;
    if (blockIdx.x == 0) {
        failed |= oriel_cuda_meet(team);
        /* What this thread has acquired its block gets by __syncthreads, the others by
         * the sync below. */
        __threadfence_system();
    }
    return oriel_cuda_sync(team) | failed;
}

/* By the whole team; four packs of each thread in flight. */
ORIEL_FN void oriel_cuda_copy(const oriel_team *team, void *dst, const void *src, size_t bytes)
{
    const size_t step = team->threads;
    size_t packs = (((uint64_t)dst | (uint64_t)src) % 16) ? 0 : bytes / 16;

    for (size_t i = team->thread; i < packs; i += 4 * step) {
        uint4 pack[4];

#pragma unroll
        for (int k = 0; k < 4; k++)
            pack[k] = ((const uint4 *)src)[i + k * step < packs ? i + k * step : i];
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + k * step < packs)
                ((uint4 *)dst)[i + k * step] = pack[k];
    }
    for (size_t i = 16 * packs + team->thread; i < bytes; i += step)
        ((char *)dst)[i] = ((const char *)src)[i];
}

/* Buffers `from` to `to`, between the caller's and the copies that all ranks reach. Out of
 * line, since it would cost the other way registers; and the team by value, which stays in
 * registers then. */
static __device__ __noinline__ void oriel_cuda_stage(oriel_team team, uint32_t from, uint32_t to,
                                                     int in)
{
    const oriel_frame *frame = team.frame;

    for (uint32_t i = from; i < to; i++) {
        void *copy = frame->buffers[i].peers[frame->rank];
        void *home = (*frame->staged)[i];

        oriel_cuda_copy(&team, in ? copy : home, in ? home : copy, (size_t)frame->buffers[i].bytes);
    }
}

/* The meeting of all ranks comes before the launch, but may not have ended yet. Then all
 * operands are there, unless they must be copied first. */
ORIEL_FN int oriel_cuda_begin(oriel_team *team, const oriel_frame *frame)
{
    void *const *staged;

#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    staged = *frame->staged;
    team->frame = frame;
    team->thread = blockIdx.x * blockDim.x + threadIdx.x;
    team->threads = gridDim.x * blockDim.x;
    team->epoch = 0;
    team->started = oriel_cuda_now();
    team->reductions = 0;
    if (!staged || staged == ORIEL_NOT_MET)
        return staged == ORIEL_NOT_MET;
#if !defined(ORIEL_HAS_GIN)
    if (frame->gin) {
        oriel_cuda_trouble(frame, ORIEL_TROUBLE_SPAN, 0);
        return 1;
    }
#endif
    oriel_cuda_stage(*team, 0, frame->num_operands, 1);
    return oriel_cuda_barrier(team);
}

/* Ranks meet again after the launch, for which the next kernel may begin; copied results are
 * there when all have ended. */
ORIEL_FN void oriel_cuda_end(oriel_team *team)
{
    const oriel_frame *frame = team->frame;

    if (*frame->staged && !oriel_cuda_barrier(team))
        oriel_cuda_stage(*team, frame->num_operands, frame->num_buffers, 0);
#if defined(ORIEL_HAS_GIN)
    if (frame->gin)
        oriel_gin_end(team);
#endif
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif

#endif
