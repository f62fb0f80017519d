/* What GPU tests need of the driver beyond what the library itself uses. */
#ifndef TESTS_SUPPORT_GPU_H
#define TESTS_SUPPORT_GPU_H

#include <stdint.h>

#include "fabric/cuda/memory.h"

typedef struct cu_graph_object *cu_graph;
typedef struct cu_graph_exec_object *cu_graph_exec;

#define GPU_CALLS(X)                                                                               \
    X(mem_alloc, cuMemAlloc_v2, (cu_ptr * at, size_t bytes))                                       \
    X(mem_free, cuMemFree_v2, (cu_ptr at))                                                         \
    X(copy, cuMemcpyDtoDAsync_v2, (cu_ptr to, cu_ptr from, size_t bytes, cu_stream stream))        \
    X(event_create, cuEventCreate, (cu_event * event, unsigned flags))                             \
    X(event_destroy, cuEventDestroy_v2, (cu_event event))                                          \
    X(event_record, cuEventRecord, (cu_event event, cu_stream stream))                             \
    X(event_sync, cuEventSynchronize, (cu_event event))                                            \
    X(event_elapsed, cuEventElapsedTime, (float *ms, cu_event from, cu_event to))                  \
    X(stream_wait, cuStreamWaitEvent, (cu_stream stream, cu_event event, unsigned flags))          \
    X(stream_query, cuStreamQuery, (cu_stream stream))                                             \
    X(host_call, cuLaunchHostFunc, (cu_stream stream, void (*fn)(void *), void *arg))              \
    X(capture_begin, cuStreamBeginCapture_v2, (cu_stream stream, int mode))                        \
    X(capture_end, cuStreamEndCapture, (cu_stream stream, cu_graph * graph))                       \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                              \
      (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                            \
    X(graph_launch, cuGraphLaunch, (cu_graph_exec exec, cu_stream stream))                         \
    X(graph_destroy, cuGraphDestroy, (cu_graph graph))                                             \
    X(exec_destroy, cuGraphExecDestroy, (cu_graph_exec exec))

typedef struct gpu_calls {
#define GPU_MEMBER(name, symbol, params) cu_result(*name) params;
    GPU_CALLS(GPU_MEMBER)
#undef GPU_MEMBER
} gpu_calls;

extern gpu_calls gpu;

#define CHECK_CU(call) gpu_check(__FILE__, __LINE__, #call, (call))
void gpu_check(const char *file, int line, const char *what, cu_result result);

/* Opens the driver; where there is no GPU the program ends as skipped. */
void gpu_open(void);
/* Makes the primary context of device 0 current in this thread. */
void gpu_enter(void);
/* That device. */
const oriel_gpu *gpu_device(void);

/* A comm on device 0: `local_ranks` of this process, the job's processes from the
 * environment. */
oriel_comm *gpu_comm(int local_ranks, double timeout_s);
/* The same alone, whatever the environment says of processes. */
oriel_comm *gpu_comm_alone(int local_ranks, double timeout_s);

cu_stream gpu_stream(void);
/* Device memory, and copies that wait. */
cu_ptr gpu_alloc(size_t bytes);
void gpu_put(cu_ptr to, const void *from, size_t bytes);
void gpu_get(void *to, cu_ptr from, size_t bytes);

/* The machine code of CUDA C, to be freed; with oriel's headers of the tree at `root`, if given:
 * compiled as oriel.kernel does. `name` is for the compiler's messages. */
void *gpu_cubin(const char *source, const char *name, const char *root, size_t *bytes_p);
/* A kernel of a test's own, `name` in the CUDA C `source`; loaded, in the current context. */
cu_function gpu_compile(const char *source, const char *name);
void gpu_launch(cu_function function, unsigned ctas, unsigned threads, void **params,
                cu_stream stream);

static inline void *gpu_pointer(cu_ptr at)
{
    return (void *)(uintptr_t)at;
}

#endif
