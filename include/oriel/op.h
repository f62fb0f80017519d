/* A host function of one's own as an operation, called inside jax.jit: for an author who
 * brings several launches, another library, or kernels that nvcc has built.
 *
 *     #include <oriel/op.h>
 *
 *     ORIEL_OP oriel_status my_op(oriel_call *call)
 *     {
 *         const float *x = call->operands[0].data;
 *         float *y = call->results[0].data;
 *         ...
 *         return ORIEL_OK;
 *     }
 *
 * cc -shared -fPIC my_op.c -o libmine.so, and in Python oriel.op("libmine.so", "my_op").
 * Nothing has to be linked with.
 *
 * On a CPU the function is called once for each rank of the group, by a thread of the
 * library, when the operands of all ranks are there; the results of all ranks may be
 * written from then on, and are what they are once it has returned on all.
 *
 * On a GPU it puts work on call->stream and returns without waiting for it: what it puts
 * there begins when the operands of all ranks are there, and the results are what they are
 * once all ranks' work is done. `data` and `peers` are device addresses. nvcc -shared
 * -Xcompiler -fPIC my_op.cu -o libmine.so builds it.
 *
 * It fails on all ranks if it does on one. docs/kernels.md has the whole story. */
#ifndef ORIEL_OP_H
#define ORIEL_OP_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <oriel/oriel.h>

#ifdef __cplusplus
extern "C" {
#define ORIEL_OP extern "C" __attribute__((visibility("default")))
#else
#define ORIEL_OP __attribute__((visibility("default")))
#endif

enum { ORIEL_CALL_DIMS = 8, ORIEL_CALL_TEXT = 256 };

/* An operand or a result. */
typedef struct oriel_call_buffer {
    void *data;                    /* of this rank: a device address on a GPU */
    size_t bytes;                  /* count times the size of an element */
    size_t count;                  /* elements; may be 0 */
    oriel_dtype dtype;             /* of its elements */
    int ndim;                      /* dimensions, ORIEL_CALL_DIMS at most; 0: a scalar */
    int64_t dims[ORIEL_CALL_DIMS]; /* the first `ndim` are set */
    void *const *peers;            /* [size]: where each rank's is reached from here */
} oriel_call_buffer;

typedef enum oriel_call_type {
    ORIEL_CALL_INTEGER = 0,
    ORIEL_CALL_REAL = 1,
    ORIEL_CALL_STRING = 2
} oriel_call_type;

typedef struct oriel_call_attribute {
    const char *name;     /* as in the Python call */
    oriel_call_type type; /* which of the three below has the value */
    int64_t integer;      /* ORIEL_CALL_INTEGER; of booleans 0 or 1 */
    double real;          /* ORIEL_CALL_REAL; of an integer the same number */
    const char *string;   /* ORIEL_CALL_STRING; NULL: it is none */
} oriel_call_attribute;

typedef struct oriel_call oriel_call;
struct oriel_call {
    size_t struct_size; /* sizeof(oriel_call) in the library that calls */
    void *stream;       /* a GPU's (cudaStream_t): the caller's program runs on it; NULL on a CPU */
    int rank, size;     /* in the group */
    int num_operands, num_results, num_attributes; /* 0 or more of each */
    const oriel_call_buffer *operands;             /* as in the Python call */
    const oriel_call_buffer *results;              /* to be written, all of them */
    const oriel_call_attribute *attributes;        /* see oriel_call_find */
    double deadline_s; /* until when it has to be done, by CLOCK_MONOTONIC */
    /* Every rank calls it as often: what any did before it happens before what any does
     * after it. On a CPU it waits; on a GPU what is put on `stream` next does, for what all
     * ranks have put there before. A failure is permanent: return it. */
    oriel_status (*barrier)(oriel_call *call);
    /* Whether the call has failed already: for loops that wait for something. */
    int (*failed)(oriel_call *call);
    char error[ORIEL_CALL_TEXT]; /* what went wrong, see oriel_call_fail */
    void *inner;                 /* the library's own */
    /* A GPU's, NULL on a CPU: kernels read it; not 0 once the call has failed: for those
     * that wait for something. */
    const uint32_t *aborted;
};

/* Where `rank` has what `pointer`, into an operand or result of this rank, points to;
 * NULL: it points into none, or there is no such rank. */
static inline __attribute__((unused)) void *oriel_call_peer(const oriel_call *call,
                                                            const void *pointer, int rank)
{
    void *empty = NULL;

    for (int i = 0; rank >= 0 && rank < call->size && i < call->num_operands + call->num_results;
         i++) {
        const oriel_call_buffer *buffer =
            i < call->num_operands ? &call->operands[i] : &call->results[i - call->num_operands];
        uintptr_t at = (uintptr_t)pointer - (uintptr_t)buffer->data;

        if (at < buffer->bytes)
            return (char *)buffer->peers[rank] + at;
        if (at == 0 && buffer->bytes == 0) /* may lie where another begins */
            empty = buffer->peers[rank];
    }
    return empty;
}

/* The attribute of that name; NULL: there is none. */
static inline __attribute__((unused)) const oriel_call_attribute *
oriel_call_find(const oriel_call *call, const char *name)
{
    for (int i = 0; i < call->num_attributes; i++) {
        if (strcmp(call->attributes[i].name, name) == 0)
            return &call->attributes[i];
    }
    return NULL;
}

/* `return oriel_call_fail(call, ORIEL_ERR_INVALID, "x has %zu elements", n);` */
static inline __attribute__((unused)) oriel_status
oriel_call_fail(oriel_call *call, oriel_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline __attribute__((unused)) oriel_status
oriel_call_fail(oriel_call *call, oriel_status code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(call->error, sizeof call->error, format, args);
    va_end(args);
    return code;
}

#if defined(__CUDA_RUNTIME_API_H__)
/* `return oriel_call_check(call, cudaGetLastError(), "launching add");` */
static inline __attribute__((unused)) oriel_status
oriel_call_check(oriel_call *call, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return ORIEL_OK;
    return oriel_call_fail(call, ORIEL_ERR_SYSTEM, "%s: %s: %s", what, cudaGetErrorName(error),
                           cudaGetErrorString(error));
}
#endif

#ifdef __cplusplus
}
#endif
#endif
