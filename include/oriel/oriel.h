/* oriel: communication kernels over symmetric memory, callable from C and from
 * inside jax.jit.
 *
 * Words. A *process* holds one or more *ranks* (a rank is one device of one
 * process); ranks are numbered process by process. A *comm* is the world of
 * ranks, one object per process. A *group* is an ordered subset of it. A
 * *window* is memory of every rank, of one length, that every rank can address.
 *
 * Threads. One thread per rank may be inside a call on one comm at a time;
 * different ranks of a process call from different threads. Collective calls
 * that take a comm are made once per process, those that take a rank once per
 * rank.
 *
 * Errors. A function that can fail returns an oriel_status; the text of the
 * calling thread's last failure is oriel_last_error(). Output arguments end in
 * `_p` and are written only on success. */
#ifndef ORIEL_ORIEL_H
#define ORIEL_ORIEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ORIEL_API __attribute__((visibility("default")))

#define ORIEL_VERSION_MAJOR  0
#define ORIEL_VERSION_MINOR  1
#define ORIEL_VERSION_PATCH  0
#define ORIEL_VERSION_STRING "0.1.0"

typedef enum oriel_status {
    ORIEL_OK = 0,
    ORIEL_IN_PROGRESS = 1,  /* not an error: ask again */
    ORIEL_ERR_INVALID = 2,  /* an argument is wrong; nothing was sent */
    ORIEL_ERR_MISMATCH = 3, /* ranks asked for different things */
    ORIEL_ERR_TIMEOUT = 4,  /* a peer is alive but did not come in time */
    ORIEL_ERR_PEER = 5,     /* a peer is gone */
    ORIEL_ERR_REVOKED = 6,  /* the comm failed earlier; destroy it and make another */
    ORIEL_ERR_SYSTEM = 7,   /* the operating system refused something */
    ORIEL_ERR_UNSUPPORTED = 8,
    ORIEL_ERR_NO_RESOURCE = 9, /* a bounded table or pool is full */
    ORIEL_ERR_AUTH = 10        /* a peer could not prove that it belongs to the job */
} oriel_status;

typedef enum oriel_dtype {
    ORIEL_BOOL = 0,
    ORIEL_S8 = 1,
    ORIEL_S16 = 2,
    ORIEL_S32 = 3,
    ORIEL_S64 = 4,
    ORIEL_U8 = 5,
    ORIEL_U16 = 6,
    ORIEL_U32 = 7,
    ORIEL_U64 = 8,
    ORIEL_F16 = 9,
    ORIEL_BF16 = 10,
    ORIEL_F32 = 11,
    ORIEL_F64 = 12,
    ORIEL_F8E4M3FN = 13,
    ORIEL_F8E5M2 = 14,
    ORIEL_C64 = 15,
    ORIEL_C128 = 16,
    ORIEL_DTYPE_COUNT = 17
} oriel_dtype;

typedef enum oriel_redop {
    ORIEL_SUM = 0,
    ORIEL_PROD = 1,
    ORIEL_MIN = 2,
    ORIEL_MAX = 3,
    ORIEL_AND = 4, /* these three: bit by bit, of integers; of bool, logically */
    ORIEL_OR = 5,
    ORIEL_XOR = 6,
    ORIEL_REDOP_COUNT = 7
} oriel_redop;

typedef struct oriel_comm oriel_comm;
typedef struct oriel_group oriel_group;
typedef struct oriel_window oriel_window;
typedef struct oriel_request oriel_request;

/* ---- text -------------------------------------------------------------- */

ORIEL_API const char *oriel_version(void);
/* What the library was built from, as `git describe` has it, with -dirty where files had been
 * changed; "unknown" outside a repository. */
ORIEL_API const char *oriel_build_commit(void);
ORIEL_API const char *oriel_status_name(oriel_status status);
/* The calling thread's last failure as one sentence; "" when there was none.
 * Valid until the thread's next failing call. */
ORIEL_API const char *oriel_last_error(void);
ORIEL_API const char *oriel_dtype_name(oriel_dtype dtype);
ORIEL_API const char *oriel_redop_name(oriel_redop redop);
/* Bytes of one element; 0 for a value that is no dtype. */
ORIEL_API size_t oriel_dtype_size(oriel_dtype dtype);

/* ---- store: how processes find each other ------------------------------ */

/* A key-value store the caller already has. `set` publishes a value once.
 * `get` waits at most `timeout_s` seconds for `key`, which may be 0, copies at most
 * `capacity` bytes to `value` and stores the length. Both may be called from any thread
 * that calls oriel_comm_create. */
typedef struct oriel_store {
    size_t struct_size; /* ORIEL_STORE_INIT sets it */
    void *ctx;          /* the caller's, handed to both */
    /* Publishes `len` bytes under a key. One that is set keeps its value: then
     * ORIEL_ERR_MISMATCH, unless the value is the same. */
    oriel_status (*set)(void *ctx, const char *key, const void *value, size_t len);
    /* ORIEL_ERR_TIMEOUT: nobody has set it in time. */
    oriel_status (*get)(void *ctx, const char *key, double timeout_s, void *value, size_t capacity,
                        size_t *len_p);
} oriel_store;
#define ORIEL_STORE_INIT                                                                           \
    {                                                                                              \
        sizeof(oriel_store), NULL, NULL, NULL                                                      \
    }

/* ---- comm -------------------------------------------------------------- */

typedef struct oriel_comm_params {
    size_t struct_size;    /* ORIEL_COMM_PARAMS_INIT sets it */
    int process_id;        /* -1: from ORIEL_PROCESS_ID, mpirun or srun, or 0 of 1 */
    int num_processes;     /* 0: from ORIEL_NUM_PROCESSES, mpirun or srun, or 1 */
    int local_ranks;       /* ranks this process holds; 0 means 1 */
    const char *store;     /* "unix:@name" or "host:port"; NULL: ORIEL_STORE, else the job's */
    const char *secret;    /* what the job's processes prove to each other; NULL: ORIEL_SECRET */
    const oriel_store *kv; /* used instead of `store` when set */
    const char *job;       /* prefix of the keys in the store; NULL: "oriel" */
    double timeout_s;      /* deadline of an operation; 0: ORIEL_TIMEOUT */
    const int *devices;    /* per local rank: its CUDA device; NULL: ranks are CPUs */
} oriel_comm_params;
#define ORIEL_COMM_PARAMS_INIT                                                                     \
    {                                                                                              \
        sizeof(oriel_comm_params), -1, 0, 0, NULL, NULL, NULL, NULL, 0.0, NULL                     \
    }

/* Collective: every process calls it once. On failure no process holds a comm. */
ORIEL_API oriel_status oriel_comm_create(const oriel_comm_params *params, oriel_comm **comm_p);
/* Collective, bounded by the comm's deadline: waits until every process is
 * here, unless the comm is revoked. Always frees the local part. NULL is fine;
 * a forked child does nothing here. */
ORIEL_API oriel_status oriel_comm_destroy(oriel_comm *comm);
/* Local: frees the local part at once and waits for nobody; for exit paths.
 * Peers that still call are told that this process has left. */
ORIEL_API void oriel_comm_abandon(oriel_comm *comm);
/* Local: ORIEL_OK, or the failure that revoked the comm. */
ORIEL_API oriel_status oriel_comm_check(oriel_comm *comm);
/* Collective over processes: returns once every process has called it. */
ORIEL_API oriel_status oriel_comm_barrier(oriel_comm *comm);

ORIEL_API int oriel_comm_size(const oriel_comm *comm);       /* ranks in the world */
ORIEL_API int oriel_comm_first_rank(const oriel_comm *comm); /* this process's first rank */
ORIEL_API int oriel_comm_local_size(const oriel_comm *comm); /* ranks of this process */
ORIEL_API int oriel_comm_process(const oriel_comm *comm);
ORIEL_API int oriel_comm_num_processes(const oriel_comm *comm);
/* Local: machines are numbered from 0, by the first process of each. Host memory is shared
 * within a machine. -1: there is no such process. */
ORIEL_API int oriel_comm_num_machines(const oriel_comm *comm);
ORIEL_API int oriel_comm_machine(const oriel_comm *comm, int process);

/* ---- group ------------------------------------------------------------- */

/* Local, no exchange: `ranks` is the ordered list, the same on every member. */
ORIEL_API oriel_status oriel_group_create(oriel_comm *comm, const int *ranks, int n,
                                          oriel_group **group_p);
ORIEL_API void oriel_group_destroy(oriel_group *group);
/* The group of all ranks in rank order; owned by the comm. */
ORIEL_API oriel_group *oriel_comm_world(oriel_comm *comm);
ORIEL_API int oriel_group_size(const oriel_group *group);
ORIEL_API int oriel_group_index(const oriel_group *group, int rank); /* -1: no member */

/* ---- window ------------------------------------------------------------ */

/* Collective: every process with a rank in the group calls it, once, with the same `bytes` (per
 * rank). The memory is zeroed, and takes room when it is touched. On failure no process holds the
 * window. */
ORIEL_API oriel_status oriel_window_create(oriel_group *group, size_t bytes,
                                           oriel_window **window_p);
/* Local: this process uses it no more. Its memory is used again when no process holds it. NULL is
 * fine; those that are left go with the comm. */
ORIEL_API void oriel_window_free(oriel_window *window);
ORIEL_API size_t oriel_window_bytes(const oriel_window *window);
/* From 1, the same on all processes; no other window of the comm has it, before or after. */
ORIEL_API uint64_t oriel_window_number(const oriel_window *window);
/* Local: where this process sees `rank`'s part. */
ORIEL_API oriel_status oriel_window_ptr(const oriel_window *window, int rank, void **ptr_p);
/* Local: which window, rank and offset an address of this process belongs to. */
ORIEL_API oriel_status oriel_window_find(oriel_comm *comm, const void *addr,
                                         oriel_window **window_p, int *rank_p, size_t *offset_p);

/* ---- operations -------------------------------------------------------- */

/* All are collective over the group and called once for each member by the
 * process that holds it: `rank` is the caller's own rank in the world, `root` and
 * `pairs` are positions in the group. `n` below is the group's size and `i` the
 * position of `rank`. Calls on one group match in the order in which each rank
 * makes them. Every call returns once all members have come, and succeeds on all of
 * them or on none, but broadcast, permute, gather, scatter, reduce and scan. Those may
 * return as soon as the rank's own part is done: a member that does not come is reported to those
 * that need it, and to everybody else in the next call. Buffers may not overlap except as said
 * under "in place". On failure `recv` is poisoned (NaN, signed minimum, unsigned
 * maximum, false).
 *
 * Reductions combine elements in group order, so that the bits are the same on
 * every rank and in every run; f16, bf16 and f8 accumulate in f32.
 *
 * Each has a started form, named `..._start`: the buffers belong to the operation
 * until oriel_request_test or oriel_request_wait has given its outcome; arrays
 * that describe the call (`pairs`, `ragged`) may be reused at once. */

/* `recv` gets the reduction of every member's `send`; `count` elements each.
 * In place: send == recv. */
ORIEL_API oriel_status oriel_all_reduce(oriel_group *group, int rank, const void *send, void *recv,
                                        size_t count, oriel_dtype dtype, oriel_redop redop);
/* ORIEL_MIN and ORIEL_MAX, and which member has it: `loc` gets the position in the group of the
 * first member whose element is equal to the one in `recv`, -0 to +0 and NaN to NaN. It is made of
 * two all_reduces, the second one over positions, and has no started form; never in place. */
ORIEL_API oriel_status oriel_all_reduce_loc(oriel_group *group, int rank, const void *send,
                                            void *recv, int32_t *loc, size_t count,
                                            oriel_dtype dtype, oriel_redop redop);
/* `send` has `count` elements, `recv` n * count: member j's at j * count.
 * In place: send == recv + i * count elements. */
ORIEL_API oriel_status oriel_all_gather(oriel_group *group, int rank, const void *send, void *recv,
                                        size_t count, oriel_dtype dtype);
/* `send` has n * count elements, `recv` gets the reduction of the i-th `count` of
 * every member. In place: recv == send + i * count elements. */
ORIEL_API oriel_status oriel_reduce_scatter(oriel_group *group, int rank, const void *send,
                                            void *recv, size_t count, oriel_dtype dtype,
                                            oriel_redop redop);
/* Both have n * count elements: block j of `recv` is block i of member j's `send`.
 * In place: send == recv. */
ORIEL_API oriel_status oriel_all_to_all(oriel_group *group, int rank, const void *send, void *recv,
                                        size_t count, oriel_dtype dtype);
/* `recv` gets `send` of member `root`, the only one whose `send` is read.
 * In place: send == recv. */
ORIEL_API oriel_status oriel_broadcast(oriel_group *group, int rank, const void *send, void *recv,
                                       size_t count, oriel_dtype dtype, int root);
/* `pairs` holds num_pairs times (source, destination), the same list on every
 * member; nobody is source twice or destination twice. A member that is nobody's
 * destination gets zeros. In place: send == recv. */
ORIEL_API oriel_status oriel_permute(oriel_group *group, int rank, const void *send, void *recv,
                                     size_t count, oriel_dtype dtype, const int *pairs,
                                     int num_pairs);
/* Returns once all members have come. */
ORIEL_API oriel_status oriel_barrier(oriel_group *group, int rank);

/* At member `root` `recv` gets n * count elements, member j's `send` at j * count. That of the
 * others is not touched and may be NULL. In place at the root: send == recv + root * count
 * elements. */
ORIEL_API oriel_status oriel_gather(oriel_group *group, int rank, const void *send, void *recv,
                                    size_t count, oriel_dtype dtype, int root);
/* `recv` gets the i-th `count` elements of `send` of member `root`, which has n * count and is the
 * only one that is read. In place at the root: recv == send + root * count elements. */
ORIEL_API oriel_status oriel_scatter(oriel_group *group, int rank, const void *send, void *recv,
                                     size_t count, oriel_dtype dtype, int root);
/* As oriel_all_reduce, but only `root` gets the result; `recv` of the others is not touched and
 * may be NULL. In place: send == recv. */
ORIEL_API oriel_status oriel_reduce(oriel_group *group, int rank, const void *send, void *recv,
                                    size_t count, oriel_dtype dtype, oriel_redop redop, int root);
/* `recv` gets the reduction of `send` of members 0 to i. In place: send == recv. */
ORIEL_API oriel_status oriel_scan(oriel_group *group, int rank, const void *send, void *recv,
                                  size_t count, oriel_dtype dtype, oriel_redop redop);

/* Messages: the two that are named take part, and nobody else. `count` and `dtype` are the same on
 * both. `dest` and `source` are positions in the group, of another member. Messages from one member
 * to another match in the order in which both make them; those of the opposite direction, and of
 * other groups, have orders of their own. A small one is on its way when oriel_send returns, as
 * long as not too many wait to be received; a large one when it has been received. So two that both
 * send first use oriel_send_start or oriel_sendrecv. */
ORIEL_API oriel_status oriel_send(oriel_group *group, int rank, const void *send, size_t count,
                                  oriel_dtype dtype, int dest);
ORIEL_API oriel_status oriel_recv(oriel_group *group, int rank, void *recv, size_t count,
                                  oriel_dtype dtype, int source);
/* Both at once: send_count elements to `dest`, recv_count from `source`, which may be the same
 * member. The buffers may not overlap. */
ORIEL_API oriel_status oriel_sendrecv(oriel_group *group, int rank, const void *send,
                                      size_t send_count, int dest, void *recv, size_t recv_count,
                                      int source, oriel_dtype dtype);

/* Which rows go where: four arrays of n * slices entries, of which j * slices
 * onwards concern member j. Slice k of `send` is send_sizes[k] rows from
 * input_offsets[k] and lands at row output_offsets[k] of the *receiver's* `recv`;
 * recv_sizes[k] is what this member gets, which must be what the sender sends.
 * Rows of `recv` that nobody writes keep what they had; in place, those of `send`. */
typedef struct oriel_ragged {
    size_t struct_size;            /* ORIEL_RAGGED_INIT sets it */
    size_t row;                    /* elements of a row; the same on every member */
    size_t send_rows;              /* rows of `send` */
    size_t recv_rows;              /* rows of `recv` */
    int slices;                    /* slices for each member; the same on every member */
    const int64_t *input_offsets;  /* first row of `send`, of each slice */
    const int64_t *send_sizes;     /* rows of each */
    const int64_t *output_offsets; /* where they land in the receiver's `recv` */
    const int64_t *recv_sizes;     /* rows that come */
} oriel_ragged;
#define ORIEL_RAGGED_INIT                                                                          \
    {                                                                                              \
        sizeof(oriel_ragged), 1, 0, 0, 1, NULL, NULL, NULL, NULL                                   \
    }
/* In place: send == recv, with room for the rows of both; costs a copy of `send`. */
ORIEL_API oriel_status oriel_ragged_all_to_all(oriel_group *group, int rank, const void *send,
                                               void *recv, oriel_dtype dtype,
                                               const oriel_ragged *ragged);

/* One array of a list: what the operation takes for one. */
typedef struct oriel_array {
    const void *send; /* as in the operation */
    void *recv;       /* the same; in place, or apart from all other arrays */
    size_t count;     /* elements of a block; 0: the array is passed over */
} oriel_array;
enum { ORIEL_ARRAYS_MAX = 65535 };
/* An operation on a list of arrays of one dtype, as one operation: the members meet once, and each
 * array gets the bits that it would get by itself. All members have as many arrays, with the same
 * counts in the same order. `arrays` may go once the call has returned, also one that starts;
 * what it points to stays as in the operation. */
ORIEL_API oriel_status oriel_all_reduce_many(oriel_group *group, int rank,
                                             const oriel_array *arrays, int num_arrays,
                                             oriel_dtype dtype, oriel_redop redop);
ORIEL_API oriel_status oriel_all_gather_many(oriel_group *group, int rank,
                                             const oriel_array *arrays, int num_arrays,
                                             oriel_dtype dtype);
ORIEL_API oriel_status oriel_reduce_scatter_many(oriel_group *group, int rank,
                                                 const oriel_array *arrays, int num_arrays,
                                                 oriel_dtype dtype, oriel_redop redop);
ORIEL_API oriel_status oriel_broadcast_many(oriel_group *group, int rank, const oriel_array *arrays,
                                            int num_arrays, oriel_dtype dtype, int root);

ORIEL_API oriel_status oriel_all_reduce_start(oriel_group *group, int rank, const void *send,
                                              void *recv, size_t count, oriel_dtype dtype,
                                              oriel_redop redop, oriel_request **request_p);
ORIEL_API oriel_status oriel_all_gather_start(oriel_group *group, int rank, const void *send,
                                              void *recv, size_t count, oriel_dtype dtype,
                                              oriel_request **request_p);
ORIEL_API oriel_status oriel_reduce_scatter_start(oriel_group *group, int rank, const void *send,
                                                  void *recv, size_t count, oriel_dtype dtype,
                                                  oriel_redop redop, oriel_request **request_p);
ORIEL_API oriel_status oriel_all_to_all_start(oriel_group *group, int rank, const void *send,
                                              void *recv, size_t count, oriel_dtype dtype,
                                              oriel_request **request_p);
ORIEL_API oriel_status oriel_broadcast_start(oriel_group *group, int rank, const void *send,
                                             void *recv, size_t count, oriel_dtype dtype, int root,
                                             oriel_request **request_p);
ORIEL_API oriel_status oriel_permute_start(oriel_group *group, int rank, const void *send,
                                           void *recv, size_t count, oriel_dtype dtype,
                                           const int *pairs, int num_pairs,
                                           oriel_request **request_p);
ORIEL_API oriel_status oriel_barrier_start(oriel_group *group, int rank, oriel_request **request_p);
ORIEL_API oriel_status oriel_ragged_all_to_all_start(oriel_group *group, int rank, const void *send,
                                                     void *recv, oriel_dtype dtype,
                                                     const oriel_ragged *ragged,
                                                     oriel_request **request_p);
ORIEL_API oriel_status oriel_gather_start(oriel_group *group, int rank, const void *send,
                                          void *recv, size_t count, oriel_dtype dtype, int root,
                                          oriel_request **request_p);
ORIEL_API oriel_status oriel_scatter_start(oriel_group *group, int rank, const void *send,
                                           void *recv, size_t count, oriel_dtype dtype, int root,
                                           oriel_request **request_p);
ORIEL_API oriel_status oriel_reduce_start(oriel_group *group, int rank, const void *send,
                                          void *recv, size_t count, oriel_dtype dtype,
                                          oriel_redop redop, int root, oriel_request **request_p);
ORIEL_API oriel_status oriel_scan_start(oriel_group *group, int rank, const void *send, void *recv,
                                        size_t count, oriel_dtype dtype, oriel_redop redop,
                                        oriel_request **request_p);
ORIEL_API oriel_status oriel_all_reduce_many_start(oriel_group *group, int rank,
                                                   const oriel_array *arrays, int num_arrays,
                                                   oriel_dtype dtype, oriel_redop redop,
                                                   oriel_request **request_p);
ORIEL_API oriel_status oriel_all_gather_many_start(oriel_group *group, int rank,
                                                   const oriel_array *arrays, int num_arrays,
                                                   oriel_dtype dtype, oriel_request **request_p);
ORIEL_API oriel_status oriel_reduce_scatter_many_start(oriel_group *group, int rank,
                                                       const oriel_array *arrays, int num_arrays,
                                                       oriel_dtype dtype, oriel_redop redop,
                                                       oriel_request **request_p);
ORIEL_API oriel_status oriel_broadcast_many_start(oriel_group *group, int rank,
                                                  const oriel_array *arrays, int num_arrays,
                                                  oriel_dtype dtype, int root,
                                                  oriel_request **request_p);
ORIEL_API oriel_status oriel_send_start(oriel_group *group, int rank, const void *send,
                                        size_t count, oriel_dtype dtype, int dest,
                                        oriel_request **request_p);
ORIEL_API oriel_status oriel_recv_start(oriel_group *group, int rank, void *recv, size_t count,
                                        oriel_dtype dtype, int source, oriel_request **request_p);
/* ORIEL_IN_PROGRESS, or the outcome; the request is freed with the outcome. */
ORIEL_API oriel_status oriel_request_test(oriel_request *request);
ORIEL_API oriel_status oriel_request_wait(oriel_request *request);

/* ---- operations on a CUDA stream ----------------------------------------- */

/* For comms made with `devices`: as the operations above, but `send` and `recv` are memory
 * that the rank's device can address, aligned to their elements, and the call only puts
 * kernels on `stream` (a CUstream or cudaStream_t of the rank's device; NULL: the default
 * one) and returns: the device waits for the other ranks, the host never does.
 *
 * Each rank makes its calls in one order, the same on all members, on one stream or on
 * streams that events put into that order. Calls can be captured in a CUDA graph; its
 * replays count as calls. What is wrong with the arguments is said at once. A failure on
 * the device (a rank that does not come in time, that asks for something else, or that
 * is gone) poisons `recv`, leaves the CUDA context alive and revokes the comm: the next
 * call, oriel_comm_check and oriel_comm_destroy say what it was. Some ranks may then have
 * ended that call well.
 *
 * Where peers cannot map a buffer, or not yet, data passes through oriel's own memory;
 * the result is the same, bit for bit that of the CPU. */
ORIEL_API oriel_status oriel_all_reduce_on(oriel_group *group, int rank, const void *send,
                                           void *recv, size_t count, oriel_dtype dtype,
                                           oriel_redop redop, void *stream);

/* How an all-reduce moves its data. */
typedef enum oriel_via {
    ORIEL_VIA_AUTO = 0, /* oriel chooses, as in oriel_all_reduce_on */
    ORIEL_VIA_PEER = 1, /* oriel's kernels, on addresses that the driver gives; no NCCL */
    ORIEL_VIA_NCCL = 2, /* ncclAllReduce, on a stream of oriel's between two events; it sums in
                           an order of its own */
    ORIEL_VIA_COUNT = 7 /* the others: oriel/experimental/vias.h */
} oriel_via;
/* As oriel_all_reduce_on, by the via that is named, which must be the same on all members. One
 * that is not to be had here fails at once with ORIEL_ERR_UNSUPPORTED, and says what is
 * missing. */
ORIEL_API oriel_status oriel_all_reduce_via_on(oriel_group *group, int rank, const void *send,
                                               void *recv, size_t count, oriel_dtype dtype,
                                               oriel_redop redop, oriel_via via, void *stream);
/* Local: whether such a call could be made, and if not, why; the same on all members. */
ORIEL_API oriel_status oriel_via_check(const oriel_group *group, oriel_via via, oriel_dtype dtype,
                                       oriel_redop redop);
ORIEL_API const char *oriel_via_name(oriel_via via);

ORIEL_API oriel_status oriel_all_gather_on(oriel_group *group, int rank, const void *send,
                                           void *recv, size_t count, oriel_dtype dtype,
                                           void *stream);
ORIEL_API oriel_status oriel_reduce_scatter_on(oriel_group *group, int rank, const void *send,
                                               void *recv, size_t count, oriel_dtype dtype,
                                               oriel_redop redop, void *stream);
ORIEL_API oriel_status oriel_all_to_all_on(oriel_group *group, int rank, const void *send,
                                           void *recv, size_t count, oriel_dtype dtype,
                                           void *stream);
ORIEL_API oriel_status oriel_broadcast_on(oriel_group *group, int rank, const void *send,
                                          void *recv, size_t count, oriel_dtype dtype, int root,
                                          void *stream);
/* `pairs` is in host memory, and may be reused at once. */
ORIEL_API oriel_status oriel_permute_on(oriel_group *group, int rank, const void *send, void *recv,
                                        size_t count, oriel_dtype dtype, const int *pairs,
                                        int num_pairs, void *stream);
/* What follows on the stream comes after what precedes it on the others' streams. */
ORIEL_API oriel_status oriel_barrier_on(oriel_group *group, int rank, void *stream);

/* As oriel_ragged, with arrays in device memory, which the device reads: nothing of them is
 * known to the host. */
typedef struct oriel_ragged_on {
    size_t struct_size; /* ORIEL_RAGGED_ON_INIT sets it */
    size_t row;         /* elements of a row; the same on every member */
    size_t send_rows;   /* rows of `send` */
    size_t recv_rows;   /* rows of `recv` */
    int slices;         /* slices for each member, 1024 at most; the same on every member */
    oriel_dtype index;  /* of the arrays: ORIEL_S32 or ORIEL_S64; may differ between members */
    const void *input_offsets; /* the four arrays: as in oriel_ragged */
    const void *send_sizes;
    const void *output_offsets;
    const void *recv_sizes;
} oriel_ragged_on;
#define ORIEL_RAGGED_ON_INIT                                                                       \
    {                                                                                              \
        sizeof(oriel_ragged_on), 1, 0, 0, 1, ORIEL_S64, NULL, NULL, NULL, NULL                     \
    }
/* Never in place. */
ORIEL_API oriel_status oriel_ragged_all_to_all_on(oriel_group *group, int rank, const void *send,
                                                  void *recv, oriel_dtype dtype,
                                                  const oriel_ragged_on *ragged, void *stream);

/* Local, returns at once, for a caller that knows buffers before the calls on them: looks which
 * memory `ptr` is part of and has the other processes map it. Calls do the same; until all have
 * mapped it, data passes through oriel's memory. A caller that maps other memory at an address
 * that a graph uses offers it again before the next replay: that is no call that could notice. */
ORIEL_API oriel_status oriel_buffer_offer(oriel_comm *comm, int rank, const void *ptr,
                                          size_t bytes);

/* ---- options ----------------------------------------------------------- */

typedef struct oriel_option {
    const char *name;   /* ORIEL_... */
    const char *value;  /* as text: what is used now */
    const char *source; /* "default" or "environment" */
    const char *help;   /* what it is for */
} oriel_option;
/* Local: option number `index`; ORIEL_ERR_INVALID past the last. */
ORIEL_API oriel_status oriel_option_get(int index, oriel_option *option_p);

#ifdef __cplusplus
}
#endif
#endif
