/* Every call that the library makes of NCCL, doing nothing; nccl.c has what matters. */
#include "fabric/nccl/library.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define STUB(name, symbol, params)                                                                 \
    nccl_result symbol params;                                                                     \
    __attribute__((weak)) nccl_result symbol params                                                \
    {                                                                                              \
        return NCCL_SUCCESS;                                                                       \
    }
NCCL_CALLS(STUB)
