#include "oriel/oriel.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[ORIEL_DTYPE_COUNT] = {
    [ORIEL_BOOL] = {.name = "bool", .bytes = 1},
    [ORIEL_S8] = {.name = "s8", .bytes = 1},
    [ORIEL_S16] = {.name = "s16", .bytes = 2},
    [ORIEL_S32] = {.name = "s32", .bytes = 4},
    [ORIEL_S64] = {.name = "s64", .bytes = 8},
    [ORIEL_U8] = {.name = "u8", .bytes = 1},
    [ORIEL_U16] = {.name = "u16", .bytes = 2},
    [ORIEL_U32] = {.name = "u32", .bytes = 4},
    [ORIEL_U64] = {.name = "u64", .bytes = 8},
    [ORIEL_F16] = {.name = "f16", .bytes = 2},
    [ORIEL_BF16] = {.name = "bf16", .bytes = 2},
    [ORIEL_F32] = {.name = "f32", .bytes = 4},
    [ORIEL_F64] = {.name = "f64", .bytes = 8},
    [ORIEL_F8E4M3FN] = {.name = "f8e4m3fn", .bytes = 1},
    [ORIEL_F8E5M2] = {.name = "f8e5m2", .bytes = 1},
    [ORIEL_C64] = {.name = "c64", .bytes = 8},
    [ORIEL_C128] = {.name = "c128", .bytes = 16},
};

static const char *const redops[ORIEL_REDOP_COUNT] = {
    [ORIEL_SUM] = "sum",
    [ORIEL_PROD] = "prod",
    [ORIEL_MIN] = "min",
    [ORIEL_MAX] = "max",
};

const char *oriel_version(void)
{
    return ORIEL_VERSION_STRING;
}

/* The casts catch values from outside C, negative ones too. */
const char *oriel_dtype_name(oriel_dtype dtype)
{
    return (unsigned)dtype < ORIEL_DTYPE_COUNT ? dtypes[dtype].name : "unknown dtype";
}

size_t oriel_dtype_size(oriel_dtype dtype)
{
    return (unsigned)dtype < ORIEL_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *oriel_redop_name(oriel_redop op)
{
    return (unsigned)op < ORIEL_REDOP_COUNT ? redops[op] : "unknown operation";
}
