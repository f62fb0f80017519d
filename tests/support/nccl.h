/* NCCL beside oriel, for programs that compare: opened at run time, and the few calls of it
 * declared here. Ranks may share a GPU from 2.30 on. */
#ifndef TESTS_SUPPORT_NCCL_H
#define TESTS_SUPPORT_NCCL_H

#include "support/gpu.h"

typedef struct nccl_comm_object *nccl_comm;
typedef struct nccl_window_object *nccl_window;

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

enum { NCCL_FLOAT32 = 7, NCCL_SUM = 0, NCCL_WINDOW_SYMMETRIC = 1 };

#define NCCL_CALLS(X)                                                                              \
    X(version, ncclGetVersion, (int *version))                                                     \
    X(id_make, ncclGetUniqueId, (nccl_id * id))                                                    \
    X(comm_create, ncclCommInitRank, (nccl_comm * comm, int size, nccl_id id, int rank))           \
    X(comm_destroy, ncclCommDestroy, (nccl_comm comm))                                             \
    X(mem_alloc, ncclMemAlloc, (void **at, size_t bytes))                                          \
    X(mem_free, ncclMemFree, (void *at))                                                           \
    X(window_register, ncclCommWindowRegister,                                                     \
      (nccl_comm comm, void *at, size_t bytes, nccl_window *window, int flags))                    \
    X(window_deregister, ncclCommWindowDeregister, (nccl_comm comm, nccl_window window))           \
    X(all_reduce, ncclAllReduce,                                                                   \
      (const void *send, void *recv, size_t count, int dtype, int op, nccl_comm comm,              \
       cu_stream stream))

typedef struct nccl_calls {
#define NCCL_MEMBER(name, symbol, params) int(*name) params;
    NCCL_CALLS(NCCL_MEMBER)
#undef NCCL_MEMBER
} nccl_calls;

extern nccl_calls nccl;

#define CHECK_NCCL(call) nccl_check(__FILE__, __LINE__, #call, (call))
void nccl_check(const char *file, int line, const char *what, int result);

/* Opens the library, once per process; `size` ranks will share the GPU. Where it is missing
 * or too old the program ends as skipped. */
void nccl_open(const char *library, int size);
/* Collective over the ranks of `comm`: NCCL's communicator of the same ranks. */
nccl_comm nccl_comm_of(oriel_comm *comm, int rank);

/* Memory that NCCL reaches symmetrically. */
typedef struct nccl_memory {
    void *at;
    nccl_window window;
} nccl_memory;

/* Collective. */
nccl_memory nccl_memory_make(nccl_comm comm, size_t bytes);
/* Local: no rank may use it any more. */
void nccl_memory_free(nccl_comm comm, nccl_memory *memory);

#endif
