#include "base/types.h"

#include "oriel/experimental/vias.h"

static const char *const dtypes[ORIEL_DTYPE_COUNT] = {
    [ORIEL_BOOL] = "bool",     [ORIEL_S8] = "s8",
    [ORIEL_S16] = "s16",       [ORIEL_S32] = "s32",
    [ORIEL_S64] = "s64",       [ORIEL_U8] = "u8",
    [ORIEL_U16] = "u16",       [ORIEL_U32] = "u32",
    [ORIEL_U64] = "u64",       [ORIEL_F16] = "f16",
    [ORIEL_BF16] = "bf16",     [ORIEL_F32] = "f32",
    [ORIEL_F64] = "f64",       [ORIEL_F8E4M3FN] = "f8e4m3fn",
    [ORIEL_F8E5M2] = "f8e5m2", [ORIEL_C64] = "c64",
    [ORIEL_C128] = "c128",
};

const unsigned char oriel_dtype_shifts[ORIEL_DTYPE_COUNT] = {
    [ORIEL_BOOL] = 0, [ORIEL_S8] = 0,   [ORIEL_S16] = 1, [ORIEL_S32] = 2,      [ORIEL_S64] = 3,
    [ORIEL_U8] = 0,   [ORIEL_U16] = 1,  [ORIEL_U32] = 2, [ORIEL_U64] = 3,      [ORIEL_F16] = 1,
    [ORIEL_BF16] = 1, [ORIEL_F32] = 2,  [ORIEL_F64] = 3, [ORIEL_F8E4M3FN] = 0, [ORIEL_F8E5M2] = 0,
    [ORIEL_C64] = 3,  [ORIEL_C128] = 4,
};

static const char *const redops[ORIEL_REDOP_COUNT] = {
    [ORIEL_SUM] = "sum", [ORIEL_PROD] = "prod", [ORIEL_MIN] = "min", [ORIEL_MAX] = "max",
    [ORIEL_AND] = "and", [ORIEL_OR] = "or",     [ORIEL_XOR] = "xor",
};

static const char *const vias[ORIEL_VIA_COUNT] = {
    [ORIEL_VIA_AUTO] = "auto",
    [ORIEL_VIA_PEER] = "peer",
    [ORIEL_VIA_NCCL] = "nccl",
    [ORIEL_VIA_LSA] = "lsa",
    [ORIEL_VIA_SYM_PEER] = "sym_peer",
    [ORIEL_VIA_MULTICAST] = "multicast",
    [ORIEL_VIA_SYM_MULTIMEM] = "sym_multimem",
};

const char *oriel_version(void)
{
    return ORIEL_VERSION_STRING;
}

const char *oriel_dtype_name(oriel_dtype dtype)
{
    return oriel_dtype_known(dtype) ? dtypes[dtype] : "unknown dtype";
}

size_t oriel_dtype_size(oriel_dtype dtype)
{
    return oriel_dtype_known(dtype) ? (size_t)1 << oriel_dtype_shift(dtype) : 0;
}

const char *oriel_redop_name(oriel_redop redop)
{
    return (unsigned)redop < ORIEL_REDOP_COUNT ? redops[redop] : "unknown operation";
}

const char *oriel_via_name(oriel_via via)
{
    return (unsigned)via < ORIEL_VIA_COUNT ? vias[via] : "unknown via";
}
