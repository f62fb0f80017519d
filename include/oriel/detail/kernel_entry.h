/* How oriel.kernel calls a kernel, and launchers of one's own: part of oriel/kernel.h, see "Layout
 * of a call" in docs/kernels.md. */
#ifndef ORIEL_KERNEL_ENTRY_H
#define ORIEL_KERNEL_ENTRY_H

#include <oriel/kernel.h>

ORIEL_FN double oriel_real_of(int64_t bits)
{
#if defined(__CUDACC__)
    return __longlong_as_double((long long)bits);
#else
    double value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

#define ORIEL_ARG_BUFFER(T, i)  ((T)team->frame->buffers[i].peers[team->frame->rank])
#define ORIEL_ARG_INTEGER(T, i) ((T)team->frame->values[i])
#define ORIEL_ARG_REAL(T, i)    ((T)oriel_real_of(team->frame->values[i]))
#define ORIEL_ARG_STRING(T, i)  ((const char *)team->frame->values + team->frame->values[i])

#if defined(__CUDACC__)
/* At most half a multiprocessor for a block: kernels of two comms fit together, as they must
 * if each waits for its peers. */
#define ORIEL_ENTRY(name, call)                                                                    \
    extern "C" __global__ void __launch_bounds__(512, 2)                                           \
        oriel_entry_##name(const __grid_constant__ oriel_frame frame)                              \
    {                                                                                              \
        oriel_team self;                                                                           \
        oriel_team *team = &self;                                                                  \
        if (oriel_cuda_begin(team, &frame) == 0) {                                                 \
            call;                                                                                  \
            oriel_cuda_end(team);                                                                  \
        }                                                                                          \
    }
#else
#if defined(__cplusplus)
#define ORIEL_EXTERN extern "C"
#else
#define ORIEL_EXTERN extern
#endif
#define ORIEL_ENTRY(name, call)                                                                    \
    ORIEL_EXTERN __attribute__((visibility("default"))) void oriel_entry_##name(oriel_team *);     \
    ORIEL_EXTERN __attribute__((visibility("default"))) void oriel_entry_##name(oriel_team *team)  \
    {                                                                                              \
        call;                                                                                      \
    }
#endif

#endif
