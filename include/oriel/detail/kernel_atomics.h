/* Atomics on memory of any rank: part of oriel/kernel.h. */
#ifndef ORIEL_KERNEL_ATOMICS_H
#define ORIEL_KERNEL_ATOMICS_H

#include <oriel/detail/kernel_types.h>

#if defined(__CUDACC__)

#define ORIEL_ATOMICS(T, U)                                                                        \
    ORIEL_FN T oriel_atomic_add(T *p, T v)                                                         \
    {                                                                                              \
        return (T)atomicAdd_system((U *)p, (U)v);                                                  \
    }                                                                                              \
    ORIEL_FN T oriel_atomic_exchange(T *p, T v)                                                    \
    {                                                                                              \
        __threadfence_system();                                                                    \
        v = (T)atomicExch_system((U *)p, (U)v);                                                    \
        __threadfence_system();                                                                    \
        return v;                                                                                  \
    }                                                                                              \
    ORIEL_FN T oriel_atomic_cas(T *p, T old, T v)                                                  \
    {                                                                                              \
        __threadfence_system();                                                                    \
        v = (T)atomicCAS_system((U *)p, (U)old, (U)v);                                             \
        __threadfence_system();                                                                    \
        return v;                                                                                  \
    }                                                                                              \
    ORIEL_FN T oriel_load(const T *p)                                                              \
    {                                                                                              \
        T v = *(const volatile T *)p;                                                              \
        __threadfence_system();                                                                    \
        return v;                                                                                  \
    }                                                                                              \
    ORIEL_FN void oriel_store(T *p, T v)                                                           \
    {                                                                                              \
        __threadfence_system();                                                                    \
        *(volatile T *)p = v;                                                                      \
    }
ORIEL_ATOMICS(int32_t, unsigned int)
ORIEL_ATOMICS(uint32_t, unsigned int)
ORIEL_ATOMICS(int64_t, unsigned long long)
ORIEL_ATOMICS(uint64_t, unsigned long long)
#undef ORIEL_ATOMICS
ORIEL_FN float oriel_atomic_add(float *p, float v)
{
    return atomicAdd_system(p, v);
}
ORIEL_FN double oriel_atomic_add(double *p, double v)
{
    return atomicAdd_system(p, v);
}

#else

#define oriel_atomic_exchange(p, v) __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL)
#define oriel_load(p)               __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define oriel_store(p, v)           __atomic_store_n(p, v, __ATOMIC_RELEASE)

#define ORIEL_ATOMICS(T, name)                                                                     \
    ORIEL_FN T oriel_atomic_add_##name(T *p, T v)                                                  \
    {                                                                                              \
        return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);                                         \
    }                                                                                              \
    ORIEL_FN T oriel_atomic_cas_##name(T *p, T old, T v)                                           \
    {                                                                                              \
        __atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);            \
        return old;                                                                                \
    }
#define ORIEL_ATOMIC_ADD_FLOAT(T, U, name)                                                         \
    ORIEL_FN T oriel_atomic_add_##name(T *p, T v)                                                  \
    {                                                                                              \
        U before = __atomic_load_n((U *)(void *)p, __ATOMIC_RELAXED), after;                       \
        T old, sum;                                                                                \
                                                                                                   \
        do {                                                                                       \
            __builtin_memcpy(&old, &before, sizeof old);                                           \
            sum = old + v;                                                                         \
            __builtin_memcpy(&after, &sum, sizeof after);                                          \
        } while (!__atomic_compare_exchange_n((U *)(void *)p, &before, after, 1, __ATOMIC_RELAXED, \
                                              __ATOMIC_RELAXED));                                  \
        return old;                                                                                \
    }
ORIEL_ATOMICS(int32_t, s32)
ORIEL_ATOMICS(uint32_t, u32)
ORIEL_ATOMICS(int64_t, s64)
ORIEL_ATOMICS(uint64_t, u64)
ORIEL_ATOMIC_ADD_FLOAT(float, uint32_t, f32)
ORIEL_ATOMIC_ADD_FLOAT(double, uint64_t, f64)
#undef ORIEL_ATOMICS
#undef ORIEL_ATOMIC_ADD_FLOAT

#if defined(__cplusplus)
#define ORIEL_OVERLOAD(T, name)                                                                    \
    ORIEL_FN T oriel_atomic_add(T *p, T v)                                                         \
    {                                                                                              \
        return oriel_atomic_add_##name(p, v);                                                      \
    }
ORIEL_OVERLOAD(int32_t, s32)
ORIEL_OVERLOAD(uint32_t, u32)
ORIEL_OVERLOAD(int64_t, s64)
ORIEL_OVERLOAD(uint64_t, u64)
ORIEL_OVERLOAD(float, f32)
ORIEL_OVERLOAD(double, f64)
#undef ORIEL_OVERLOAD
#define ORIEL_OVERLOAD(T, name)                                                                    \
    ORIEL_FN T oriel_atomic_cas(T *p, T old, T v)                                                  \
    {                                                                                              \
        return oriel_atomic_cas_##name(p, old, v);                                                 \
    }
ORIEL_OVERLOAD(int32_t, s32)
ORIEL_OVERLOAD(uint32_t, u32)
ORIEL_OVERLOAD(int64_t, s64)
ORIEL_OVERLOAD(uint64_t, u64)
#undef ORIEL_OVERLOAD
#else
#define oriel_atomic_add(p, v)                                                                     \
    _Generic((p), int32_t *                                                                        \
             : oriel_atomic_add_s32, uint32_t *                                                    \
             : oriel_atomic_add_u32, int64_t *                                                     \
             : oriel_atomic_add_s64, uint64_t *                                                    \
             : oriel_atomic_add_u64, float *                                                       \
             : oriel_atomic_add_f32, double *                                                      \
             : oriel_atomic_add_f64)(p, v)
#define oriel_atomic_cas(p, old, v)                                                                \
    _Generic((p), int32_t *                                                                        \
             : oriel_atomic_cas_s32, uint32_t *                                                    \
             : oriel_atomic_cas_u32, int64_t *                                                     \
             : oriel_atomic_cas_s64, uint64_t *                                                    \
             : oriel_atomic_cas_u64)(p, old, v)
#endif

#endif

#endif
