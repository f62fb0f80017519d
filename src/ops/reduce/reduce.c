#include "ops/reduce/reduce.h"

#include <stdatomic.h>
#include <string.h>

#include "base/math.h"
#include "ops/reduce/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* ---- which kernels ------------------------------------------------------- */

#if defined(__x86_64__)
/* clang 14's __builtin_cpu_supports does not know f16c; AVX2 implies what F16C
 * needs from the operating system. */
static int cpu_has_avx2(void)
{
    unsigned a, b, c, d;

    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const oriel_reduce_kernels *oriel_reduce_kernels_get(int index)
{
    const oriel_reduce_kernels *tables[2];
    int n = 0;

#if defined(__x86_64__)
    if (cpu_has_avx2())
        tables[n++] = &oriel_reduce_kernels_avx2;
#endif
    tables[n++] = &oriel_reduce_kernels_base;
    return index >= 0 && index < n ? tables[index] : NULL;
}

/* Asking the CPU can take a microsecond in a virtual machine. Threads that ask
 * at the same time find the same answer. */
static const oriel_reduce_kernels *kernels_best(void)
{
    static _Atomic(const oriel_reduce_kernels *) best;
    const oriel_reduce_kernels *kernels = atomic_load_explicit(&best, memory_order_relaxed);

    if (kernels == NULL) {
        kernels = oriel_reduce_kernels_get(0);
        atomic_store_explicit(&best, kernels, memory_order_relaxed);
    }
    return kernels;
}

/* ---- floating point environment ------------------------------------------ */

/* XLA's threads flush subnormals to zero; oriel's own do not. A result must not
 * depend on which thread computed it, so kernels run with rounding to nearest,
 * subnormals kept and exceptions masked, and the caller's settings come back. */
#if defined(__x86_64__)
#define FP_DEFAULT 0x1f80u
#define FP_FLAGS   0x3fu /* what happened so far: not a setting */

static uint64_t fp_get(void)
{
    return _mm_getcsr();
}

static void fp_set(uint64_t state)
{
    _mm_setcsr((unsigned)state);
}
#elif defined(__aarch64__)
#define FP_DEFAULT 0u
#define FP_FLAGS   0u

static uint64_t fp_get(void)
{
    uint64_t state;

    __asm__ volatile("mrs %0, fpcr" : "=r"(state));
    return state;
}

static void fp_set(uint64_t state)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(state) : "memory");
}
#else
#error "reduce: x86-64 or aarch64"
#endif

/* ---- reduce -------------------------------------------------------------- */

/* Accumulators of one block of rows, on the stack: they stay in L1 next to the
 * sources, and each source is read once, in runs that prefetchers follow. A
 * block of dst is written when that block of every source has been read. */
#define BLOCK_BYTES 2048

/* Accumulates in the dtype itself; n >= 3. */
static void reduce_blocks(oriel_reduce_pair pair, void *dst, const void *const *src, int n,
                          size_t count, size_t size)
{
    _Alignas(64) char acc[BLOCK_BYTES];
    const size_t block = BLOCK_BYTES / size;

    for (size_t i = 0; i < count; i += block) {
        size_t rows = oriel_least(block, count - i);
        size_t at = i * size;

        pair(acc, (const char *)src[0] + at, (const char *)src[1] + at, rows);
        for (int k = 2; k < n - 1; k++)
            pair(acc, acc, (const char *)src[k] + at, rows);
        pair((char *)dst + at, acc, (const char *)src[n - 1] + at, rows);
    }
}

/* Accumulates in f32 and rounds once. */
static void reduce_in_f32(const oriel_reduce_kernels *kernels, void *dst, const void *const *src,
                          int n, size_t count, oriel_dtype dtype, oriel_redop redop)
{
    enum { BLOCK = BLOCK_BYTES / sizeof(float) };
    _Alignas(64) float acc[BLOCK];
    _Alignas(64) float next[BLOCK];
    const size_t size = oriel_dtype_size(dtype);

    for (size_t i = 0; i < count; i += BLOCK) {
        size_t rows = oriel_least(BLOCK, count - i);

        kernels->load[dtype](acc, (const char *)src[0] + i * size, rows);
        for (int k = 1; k < n; k++) {
            kernels->load[dtype](next, (const char *)src[k] + i * size, rows);
            kernels->pair[ORIEL_F32][redop](acc, acc, next, rows);
        }
        kernels->store[dtype]((char *)dst + i * size, acc, rows);
    }
}

static void reduce_many(const oriel_reduce_kernels *kernels, void *dst, const void *const *src,
                        int n, size_t count, oriel_dtype dtype, oriel_redop redop)
{
    oriel_reduce_pair pair = kernels->pair[dtype][redop];

    if (n == 2 && pair != NULL)
        pair(dst, src[0], src[1], count);
    else if (kernels->load[dtype] != NULL)
        reduce_in_f32(kernels, dst, src, n, count, dtype, redop);
    else
        reduce_blocks(pair, dst, src, n, count, oriel_dtype_size(dtype));
}

void oriel_reduce_with(const oriel_reduce_kernels *kernels, void *dst, const void *const *src,
                       int n, size_t count, oriel_dtype dtype, oriel_redop redop)
{
    uint64_t before;
    int changed;

    if (count == 0)
        return;
    if (n == 1) {
        if (dst != src[0])
            memcpy(dst, src[0], count * oriel_dtype_size(dtype));
        return;
    }
    before = fp_get();
    changed = (before & ~(uint64_t)FP_FLAGS) != FP_DEFAULT;
    if (changed)
        fp_set(FP_DEFAULT);
    reduce_many(kernels, dst, src, n, count, dtype, redop);
    if (changed)
        fp_set(before);
}

void oriel_reduce_elements(void *dst, const void *const *src, int n, size_t count,
                           oriel_dtype dtype, oriel_redop redop)
{
    oriel_reduce_with(kernels_best(), dst, src, n, count, dtype, redop);
}

int oriel_reduce_supported(oriel_dtype dtype, oriel_redop redop)
{
    if ((unsigned)dtype >= ORIEL_DTYPE_COUNT || (unsigned)redop >= ORIEL_REDOP_COUNT)
        return 0;
    return redop < ORIEL_AND || dtype <= ORIEL_U64; /* floats have no bits to combine */
}

/* ---- poison -------------------------------------------------------------- */

/* Little endian, as both architectures are; a complex number has two NaNs. */
static const unsigned char poison_bytes[ORIEL_DTYPE_COUNT][16] = {
    [ORIEL_BOOL] = {0},
    [ORIEL_S8] = {0x80},
    [ORIEL_S16] = {[1] = 0x80},
    [ORIEL_S32] = {[3] = 0x80},
    [ORIEL_S64] = {[7] = 0x80},
    [ORIEL_U8] = {0xff},
    [ORIEL_U16] = {0xff, 0xff},
    [ORIEL_U32] = {0xff, 0xff, 0xff, 0xff},
    [ORIEL_U64] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
    [ORIEL_F16] = {[1] = 0x7e},
    [ORIEL_BF16] = {0xc0, 0x7f},
    [ORIEL_F32] = {[2] = 0xc0, 0x7f},
    [ORIEL_F64] = {[6] = 0xf8, 0x7f},
    [ORIEL_F8E4M3FN] = {0x7f},
    [ORIEL_F8E5M2] = {0x7e},
    [ORIEL_C64] = {[2] = 0xc0, 0x7f, [6] = 0xc0, 0x7f},
    [ORIEL_C128] = {[6] = 0xf8, 0x7f, [14] = 0xf8, 0x7f},
};

void oriel_poison(void *dst, size_t count, oriel_dtype dtype)
{
    size_t size = oriel_dtype_size(dtype);
    size_t bytes = count * size;
    size_t done = size;

    if (count == 0)
        return;
    memcpy(dst, poison_bytes[dtype], size);
    while (done < bytes) { /* what is filled fills as much again */
        size_t step = done < bytes - done ? done : bytes - done;

        memcpy((char *)dst + done, dst, step);
        done += step;
    }
}
