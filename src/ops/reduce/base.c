/* The kernels for what every CPU of the architecture has (SSE2, NEON). */
#define TABLE      oriel_reduce_kernels_base
#define TABLE_NAME "base"
#include "ops/reduce/loops.h"
