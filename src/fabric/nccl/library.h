/* The part of NCCL that oriel uses, declared here and opened at run time, from 2.28 on. Calls
 * that came later are NULL where the library has none. tests/gpu/c/abi.c compares with nccl.h
 * where one is at hand. */
#ifndef ORIEL_FABRIC_NCCL_LIBRARY_H
#define ORIEL_FABRIC_NCCL_LIBRARY_H

#include "fabric/cuda/driver.h"

typedef int nccl_result; /* 0: success */
typedef struct nccl_comm_object *nccl_comm;
typedef struct nccl_window_object *nccl_window;

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

/* Some ranks of a communicator; `rank` is the caller's place among them. */
typedef struct nccl_team {
    int size, rank, stride;
} nccl_team;

/* How a window begins in device memory, from 2.28.3 on. */
typedef struct nccl_window_head {
    void *host;
    unsigned long long lsa_base; /* the memory of the first rank within reach ... */
    int lsa_rank, rank;
    unsigned stride; /* ... and how far apart those of two neighbours are, in units of 4 GiB */
    unsigned multicast_at;
} nccl_window_head;

/* As of 2.28; a library takes configurations of older versions. */
typedef struct nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char *net_name;
    int split_share;
    int traffic_class;
    const char *comm_name;
    int collnet_enable;
    int cta_policy;
    int shrink_share;
    int nvls_ctas;
    int channels_per_net_peer;
    int nvlink_centric_sched;
} nccl_config;

enum {
    NCCL_OLDEST = 22803, /* windows, the device API */
    NCCL_CONFIG_VERSION = 22800,
    NCCL_SHARES_GPU = 23000,      /* ranks may share one */
    NCCL_SIZES_DIFFER = 23000,    /* of what ranks register as one window */
    NCCL_BOUNDED_BARRIER = 23000, /* in kernels */
    NCCL_SUCCESS = 0,
    NCCL_IN_PROGRESS = 7,
    NCCL_WINDOW_DEFAULT = 0,
    NCCL_WINDOW_SYMMETRIC = 1,
    NCCL_WINDOW_ORDERED = 2, /* the network keeps the order of what it writes there */
    NCCL_WINDOW_ALIGNMENT = 4096,
    NCCL_UNDEFINED = (int)0x80000000,
    NCCL_SUM = 0,
    NCCL_PROD = 1,
    NCCL_MAX = 2,
    NCCL_MIN = 3,
    NCCL_INT8 = 0,
    NCCL_UINT8 = 1,
    NCCL_INT32 = 2,
    NCCL_UINT32 = 3,
    NCCL_INT64 = 4,
    NCCL_UINT64 = 5,
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9,
};
#define NCCL_MAGIC 0xcafebeefu
/* 23007 as the three numbers of "%d.%d.%d". */
#define NCCL_PARTS(version) (version) / 10000, (version) / 100 % 100, (version) % 100

/* X(name here, name in the library, parameters) */
#define NCCL_CALLS(X)                                                                              \
    X(get_version, ncclGetVersion, (int *version))                                                 \
    X(id_make, ncclGetUniqueId, (nccl_id * id))                                                    \
    X(comm_create, ncclCommInitRankConfig,                                                         \
      (nccl_comm * comm, int size, nccl_id id, int rank, nccl_config *config))                     \
    X(comm_finalize, ncclCommFinalize, (nccl_comm comm))                                           \
    X(comm_destroy, ncclCommDestroy, (nccl_comm comm))                                             \
    X(comm_abort, ncclCommAbort, (nccl_comm comm))                                                 \
    X(comm_state, ncclCommGetAsyncError, (nccl_comm comm, nccl_result * state))                    \
    X(comm_size, ncclCommCount, (nccl_comm comm, int *size))                                       \
    X(comm_rank, ncclCommUserRank, (nccl_comm comm, int *rank))                                    \
    X(mem_alloc, ncclMemAlloc, (void **at, size_t bytes))                                          \
    X(mem_free, ncclMemFree, (void *at))                                                           \
    X(window_register, ncclCommWindowRegister,                                                     \
      (nccl_comm comm, void *at, size_t bytes, nccl_window *window, int flags))                    \
    X(window_deregister, ncclCommWindowDeregister, (nccl_comm comm, nccl_window window))           \
    X(group_start, ncclGroupStart, (void))                                                         \
    X(group_end, ncclGroupEnd, (void))                                                             \
    X(send, ncclSend,                                                                              \
      (const void *from, size_t count, int dtype, int peer, nccl_comm comm, cu_stream stream))     \
    X(recv, ncclRecv,                                                                              \
      (void *to, size_t count, int dtype, int peer, nccl_comm comm, cu_stream stream))             \
    X(all_reduce, ncclAllReduce,                                                                   \
      (const void *send, void *recv, size_t count, int dtype, int op, nccl_comm comm,              \
       cu_stream stream))

#define NCCL_LATER_CALLS(X)                                                                        \
    X(comm_revoke, ncclCommRevoke, (nccl_comm comm, int flags))                                    \
    X(lsa_pointer, ncclGetLsaDevicePointer,                                                        \
      (nccl_window window, size_t offset, int lsa_rank, void **at))                                \
    X(comm_properties, ncclCommQueryProperties, (nccl_comm comm, void *properties))                \
    X(multimem_pointer, ncclGetLsaMultimemDevicePointer,                                           \
      (nccl_window window, size_t offset, void **at))                                              \
    X(dev_comm_create, ncclDevCommCreate, (nccl_comm comm, const void *needs, void *dev_comm))     \
    X(dev_comm_destroy, ncclDevCommDestroy, (nccl_comm comm, const void *dev_comm))

typedef struct nccl_library {
#define NCCL_MEMBER(name, symbol, params) nccl_result(*name) params;
    NCCL_CALLS(NCCL_MEMBER)
    NCCL_LATER_CALLS(NCCL_MEMBER)
#undef NCCL_MEMBER
    /* Those that return something else than a result. */
    const char *(*error_text)(nccl_result result);
    const char *(*last_error)(nccl_comm comm);
    nccl_team (*team_lsa)(nccl_comm comm);
    int version;    /* 23007 for 2.30.7 */
    char file[256]; /* that it was loaded from */
} nccl_library;

/* Local, once per process: the library that is loaded already (XLA's), else ORIEL_NCCL, else
 * libnccl.so.2. A failure is a sentence: none, too old. */
oriel_status oriel_nccl_open(const nccl_library **nccl_p);

/* The version of an NCCL that is loaded already; 0: none is. Loads nothing: the library that
 * needs one first may choose. */
int oriel_nccl_loaded(void);

/* With nothing decided. */
nccl_config oriel_nccl_config(void);

/* Fails with what NCCL says of `result`; ORIEL_OK for success. `comm` may be NULL. */
oriel_status oriel_nccl_check(const nccl_library *nccl, nccl_comm comm, nccl_result result,
                              const char *what);

#endif
