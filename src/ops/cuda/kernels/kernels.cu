/* Every kernel there is; core/device/code.c knows their names. PART selects some, so that
 * several can be compiled at the same time. */
#include "ops/cuda/kernels/kernel.cuh"
#include "ops/cuda/kernels/span.cuh"

#define BOUNDS       __launch_bounds__(DEVICE_THREADS, 2)
#define KERNEL(name) extern "C" __global__ void BOUNDS name(const __grid_constant__ device_call c)
#define KERNEL_WITH(name, type)                                                                    \
    extern "C" __global__ void BOUNDS name(const __grid_constant__ device_call c,                  \
                                           const __grid_constant__ type with)

#define LARGE(name)                                                                                \
    KERNEL(oriel_large_##name)                                                                     \
    {                                                                                              \
        follow(c);                                                                                 \
        large_reduce<name##_of>(c);                                                                \
    }                                                                                              \
    extern "C" __global__ void BOUNDS oriel_span_##name(const __grid_constant__ device_span s)     \
    {                                                                                              \
        span_reduce<name##_of>(s);                                                                 \
    }
#define BOTH(name, T, function)                                                                    \
    COMBINATION(name##_of, T, function)                                                            \
    LARGE(name)                                                                                    \
    KERNEL(oriel_small_##name)                                                                     \
    {                                                                                              \
        small_reduce<name##_of, 1>(c);                                                             \
    }
#define WIDE(name)                                                                                 \
    KERNEL(oriel_wide_##name)                                                                      \
    {                                                                                              \
        small_reduce<name##_of, DEVICE_SMALL_LINES>(c);                                            \
    }
#define ALL_OF(T, A)                                                                               \
    BOTH(T##_sum, T, A##_sum)                                                                      \
    BOTH(T##_prod, T, A##_prod)                                                                    \
    BOTH(T##_min, T, A##_min)                                                                      \
    BOTH(T##_max, T, A##_max)
#define INTEGERS_OF(T)                                                                             \
    ALL_OF(T, T)                                                                                   \
    BOTH(T##_and, T, T##_and)                                                                      \
    BOTH(T##_or, T, T##_or)                                                                        \
    BOTH(T##_xor, T, T##_xor)
#define ORDER_OF(T)                                                                                \
    BOTH(T##_min, T, T##_min)                                                                      \
    BOTH(T##_max, T, T##_max)
/* The sum is that of the parts. */
#define COMPLEX_OF(T)                                                                              \
    COMBINATION(T##_prod_of, T, T##_prod)                                                          \
    COMBINATION(T##_min_of, T, T##_min)                                                            \
    COMBINATION(T##_max_of, T, T##_max)                                                            \
    LARGE(T##_prod)                                                                                \
    LARGE(T##_min)                                                                                 \
    LARGE(T##_max)

#if PART == 0
KERNEL(oriel_large_copy)
{
    follow(c);
    large_copy(c);
}
KERNEL(oriel_ragged)
{
    follow(c);
    ragged(c);
}
KERNEL(oriel_small_copy)
{
    small_copy<1>(c);
}
KERNEL(oriel_wide_copy)
{
    small_copy<DEVICE_SMALL_LINES>(c);
}
KERNEL(oriel_meet)
{
    small_copy<1>(c);
    judge_begin(c);
}
KERNEL(oriel_judge)
{
    judge(c);
}
KERNEL_WITH(oriel_kernel_begin, device_begin)
{
    follow(c);
    kernel_begin(c, with);
}
KERNEL_WITH(oriel_kernel_end, device_end)
{
    follow(c);
    kernel_end(c, with);
}
KERNEL_WITH(oriel_kernel_span_begin, device_begin)
{
    kernel_span_begin(c, with);
}
KERNEL_WITH(oriel_kernel_span_end, device_end)
{
    follow(c);
    kernel_span_end(c, with);
}
extern "C" __global__ void BOUNDS oriel_span_begin(const __grid_constant__ device_call c,
                                                   device_record *at)
{
    span_begin(c, at);
}
extern "C" __global__ void BOUNDS oriel_span_compare(const __grid_constant__ device_call c,
                                                     const device_record *theirs, uint32_t member)
{
    span_compare(c, theirs, member);
}
KERNEL_WITH(oriel_span_pick, device_pick)
{
    span_pick(c, with);
}
ALL_OF(f32, f32)
WIDE(f32_sum)
#elif PART == 1
BOTH(bool_or, u8, bool_or)
BOTH(bool_and, u8, bool_and)
BOTH(bool_xor, u8, bool_xor)
INTEGERS_OF(u8)
ORDER_OF(s8)
#elif PART == 2
INTEGERS_OF(u16)
ORDER_OF(s16)
INTEGERS_OF(u32)
ORDER_OF(s32)
#elif PART == 3
INTEGERS_OF(u64)
ORDER_OF(s64)
ALL_OF(f64, f64)
WIDE(f64_sum)
#elif PART == 4
ALL_OF(f16, f32)
WIDE(f16_sum)
ALL_OF(f8e4m3fn, f32)
#elif PART == 5
ALL_OF(f8e5m2, f32)
COMPLEX_OF(c64)
COMPLEX_OF(c128)
#elif PART == 6
ALL_OF(bf16, f32)
WIDE(bf16_sum)
#endif
