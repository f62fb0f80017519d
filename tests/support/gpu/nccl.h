/* NCCL beside oriel, for programs that compare. Ranks may share a GPU from 2.30 on. */
#ifndef TESTS_SUPPORT_NCCL_H
#define TESTS_SUPPORT_NCCL_H

#include "fabric/nccl/library.h"
#include "support/gpu/gpu.h"

extern nccl_library nccl;

#define CHECK_NCCL(call) nccl_check(__FILE__, __LINE__, #call, (call))
void nccl_check(const char *file, int line, const char *what, int result);

/* Opens the library, once per process. Where it is missing or too old the program ends as
 * skipped. */
void nccl_open(const char *library);
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
