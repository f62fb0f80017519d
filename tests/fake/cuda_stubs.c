/* Every call that the library makes of the driver, doing nothing; cuda.c has what matters. */
#include "fabric/cuda/driver.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define STUB(name, symbol, params)                                                                 \
    cu_result symbol params;                                                                       \
    __attribute__((weak)) cu_result symbol params                                                  \
    {                                                                                              \
        return CU_OK;                                                                              \
    }
CU_CALLS(STUB)
