/* Kernels without XLA: what src/ffi does for one call, blocking. */
#ifndef TESTS_SUPPORT_LAUNCH_H
#define TESTS_SUPPORT_LAUNCH_H

#include "ops/kernel/kernel.h"

typedef struct launch {
    oriel_comm *comm;
    oriel_crew *crew;
    uint64_t count; /* of calls, the same on all ranks */
} launch;

/* Calls `kernel` for `rank` as the launch's call number `count`. */
oriel_status launch_kernel(const launch *how, int rank, const oriel_kernel *kernel,
                           const kernel_buffer *buffers, int operands, int results,
                           const int64_t *values, int num_values);
/* Every litmus test once; ends the program if one sees what it must not. */
void launch_litmus(launch *how, int rounds);

#endif
