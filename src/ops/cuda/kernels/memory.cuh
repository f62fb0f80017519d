/* What kernels are written with: loads and stores that other ranks' kernels see, with the order
 * and scope that their names say, and the kernels before and after on the stream. */
#ifndef ORIEL_OPS_CUDA_KERNELS_MEMORY_CUH
#define ORIEL_OPS_CUDA_KERNELS_MEMORY_CUH

#include "core/device/layout.h"

#define DEVICE static __device__ __forceinline__
#define SLOW   static __device__ __noinline__
#define THREAD threadIdx.x
#define CTA    blockIdx.x

/* ---- memory ------------------------------------------------------------------------ */

DEVICE uint32_t load_relaxed(const uint32_t *at)
{
    uint32_t value;

    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

DEVICE uint64_t load_relaxed(const uint64_t *at)
{
    uint64_t value;

    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

DEVICE uint32_t load_acquire(const uint32_t *at)
{
    uint32_t value;

    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

DEVICE uint32_t load_acquire_gpu(const uint32_t *at)
{
    uint32_t value;

    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

DEVICE void store_relaxed(uint32_t *at, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(at), "r"(value) : "memory");
}

DEVICE void store_release(uint32_t *at, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(at), "r"(value) : "memory");
}

DEVICE void store_release_gpu(uint32_t *at, uint32_t value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(at), "r"(value) : "memory");
}

DEVICE uint64_t exchange(uint64_t *at, uint64_t value)
{
    uint64_t old;

    asm volatile("atom.exch.relaxed.sys.global.b64 %0, [%1], %2;"
                 : "=l"(old)
                 : "l"(at), "l"(value)
                 : "memory");
    return old;
}

DEVICE uint64_t swap_if(uint64_t *at, uint64_t expected, uint64_t value)
{
    uint64_t old;

    asm volatile("atom.cas.relaxed.sys.global.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(at), "l"(expected), "l"(value)
                 : "memory");
    return old;
}

DEVICE uint32_t swap_if(uint32_t *at, uint32_t expected, uint32_t value)
{
    uint32_t old;

    asm volatile("atom.cas.relaxed.sys.global.b32 %0, [%1], %2, %3;"
                 : "=r"(old)
                 : "l"(at), "r"(expected), "r"(value)
                 : "memory");
    return old;
}

/* A line of a slot: 8 bytes of data and their tag, whole or not at all. */
DEVICE void store_line(void *at, uint64_t data, uint64_t tag)
{
    asm volatile("{ .reg .b128 line; mov.b128 line, {%1, %2};"
                 "  st.relaxed.sys.global.b128 [%0], line; }"
                 :
                 : "l"(at), "l"(data), "l"(tag)
                 : "memory");
}

DEVICE void load_line(const void *at, uint64_t &data, uint64_t &tag)
{
    asm volatile("{ .reg .b128 line; ld.relaxed.sys.global.b128 line, [%2];"
                 "  mov.b128 {%0, %1}, line; }"
                 : "=l"(data), "=l"(tag)
                 : "l"(at)
                 : "memory");
}

/* Past the L1 cache, which may hold what another rank's kernel on the same multiprocessor
 * read before it was written anew. Ordered by the meetings alone. */
DEVICE ulonglong2 load_pack(const void *at)
{
    ulonglong2 pack;

    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(pack.x), "=l"(pack.y)
                 : "l"(at));
    return pack;
}

DEVICE void store_pack(void *at, ulonglong2 pack)
{
    asm volatile("st.global.cs.v2.u64 [%0], {%1, %2};"
                 :
                 : "l"(at), "l"(pack.x), "l"(pack.y)
                 : "memory");
}

DEVICE uint64_t clock_ns()
{
    uint64_t ns;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns) : : "memory");
    return ns;
}

/* ---- the stream -------------------------------------------------------------------- */

/* From sm_90 on a kernel may begin while the one before it on the stream still runs. Until
 * it has waited for that one's end it reads and writes nothing that means anything. */
DEVICE void wait_for_last()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEVICE void let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* So that it is computed here, and not again where it is needed. */
DEVICE void settle(uint64_t &value)
{
    asm volatile("" : "+l"(value));
}

/* So that its page is found before it is needed. */
DEVICE void touch(const void *at)
{
    asm volatile("prefetch.global.L2 [%0];" : : "l"(at));
}

#endif
