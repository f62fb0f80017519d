/* What python/oriel calls through ctypes beside the public header: the XLA FFI
 * handlers and the table that says which device of this process is which rank.
 *
 * Custom calls "oriel_all_reduce", "oriel_all_gather" and so on (platforms cpu and CUDA),
 * one name for each operation, for the reader of a program: all run the same
 * handlers. "oriel_op" is "oriel_kernel" for host functions, and in a world of several
 * machines; "oriel_all_reduce_nccl" is "oriel_all_reduce" by NCCL; graphs capture neither.
 * Attributes, all i64 scalars but the arrays:
 *   version     oriel_ffi_version, of the library that lowered the call
 *   kind        enum oriel_kind
 *   groups      i64 array, ranks of all groups one after the other; smaller groups than others end
 *               in -1
 *   group_size  entries of each group
 *   name        a number of the call, by which it is found: equal on all processes, no two calls
 *               of a program have one
 *   program     a number of all that is compared of the call and its program
 *   module      of calls over axes: a number of the program, whose executions are counted; 0 if
 *               absent
 *   told        i64 array, both in words, eight letters in each: the call's in the first line
 *   world       size of the comm the program was lowered for
 *   reduce      oriel_redop; 0 if absent
 *   via         oriel_via; 0 if absent
 *   root        position in each group, of broadcast, gather, scatter and reduce; 0 if absent
 *   after       so many operands, the last ones, only order the call; 0 if absent
 *   into        so many operands before these are windows, to which the results go: the call has
 *               one result instead, one i32 that says nothing; CPUs alone; 0 if absent
 *   read        a bit for each of the first operands, which has to lie in a window: the call comes
 *               after something that wrote it; 0 if absent
 *   pairs       i64 array, (source, destination) positions in each group one after the other;
 *               none if absent
 *   kernel      oriel_kernel: what it was registered as
 *   places      i64 array, where the ranks of `groups` are in the program's list of devices, -1
 *               as there: the call may borrow XLA's communicator; none if absent
 *   communicates  1: and uses it itself, not for its buffers alone; 0 if absent
 *   values      i64 array, the attributes of a kernel: integers, the bits of doubles, and for
 *               strings the byte in this array where they begin
 *   said        i64 array, the same in words for errors, eight letters in each; none if absent
 * Operands and results have one dtype and are those of the public functions: where these have a
 * block for each member, so does the first dimension. On CPUs all_reduce, all_gather,
 * reduce_scatter and broadcast take any number of operands, each with a result: a list. But
 *   kernel             takes any number of operands and results of any dtype
 *   barrier            takes any number of operands of any dtype, each with a result
 *                      that is the same buffer
 *   ragged_all_to_all  takes operand, output (which is the same buffer as the
 *                      result), then input_offsets, send_sizes, output_offsets and
 *                      recv_sizes, s64 vectors
 *   gather, reduce     have a result on all ranks, which is written at the root alone. Elsewhere it
 *                      has the shape of the operand, whose elements it gets (give them one buffer,
 *                      and nothing is copied), or of a gather that of the root's: zeros
 *   scatter            has an operand on all ranks, which is read at the root alone. Elsewhere it
 *                      has the shape of the result or that of the root's operand
 *   message            "oriel_send" has an operand, and a result of one element that says nothing;
 *                      "oriel_recv" has a result alone. The group's first member sends.
 *                      "oriel_sendrecv" is two: it sends its operand and receives its result, and
 *                      of what it receives says from_groups, from_name, from_program and from_told
 * These four and scan work on CPUs alone: on GPUs they fail with a sentence. A message is a permute
 * of its two ranks there.
 * A token may be the first of the operands and of the results, which orders the call. */
#ifndef ORIEL_FFI_FFI_H
#define ORIEL_FFI_FFI_H

#include "oriel/oriel.h"

struct xla_frame;

/* Counts up when attributes change their meaning: a program may have been compiled, and kept, by
 * another version of oriel. Handlers refuse any other number than this. */
ORIEL_API extern const int64_t oriel_ffi_version;

/* Handlers, registered with jax.ffi under every name as
 * {"instantiate": ..., "execute": ...}. */
ORIEL_API void *oriel_ffi_instantiate(struct xla_frame *frame);
ORIEL_API void *oriel_ffi_execute(struct xla_frame *frame);
/* "oriel_after": hands its first operand on, whose buffer the result has, once the second one is
 * there. By it calls are kept in the order of the program: see python/oriel/_calls/order.py. */
ORIEL_API void *oriel_ffi_after(struct xla_frame *frame);
/* Does nothing: what a call through XLA costs by itself, for benchmarks. */
ORIEL_API void *oriel_ffi_empty(struct xla_frame *frame);

/* The same for GPUs, with one stage more:
 * {"instantiate": ..., "initialize": ..., "execute": ...}; and another, "prepare", for
 * calls that may borrow, whose names end in "_borrowing". */
ORIEL_API void *oriel_ffi_cuda_instantiate(struct xla_frame *frame);
ORIEL_API void *oriel_ffi_cuda_prepare(struct xla_frame *frame);
ORIEL_API void *oriel_ffi_cuda_initialize(struct xla_frame *frame);
ORIEL_API void *oriel_ffi_cuda_execute(struct xla_frame *frame);
/* The same, which XLA calls in every execution, as it captures no such call in a graph. */
ORIEL_API void *oriel_ffi_cuda_execute_uncaptured(struct xla_frame *frame);
/* What they cost the threads that XLA calls them in: how often, seconds in all, the longest;
 * since the last question. */
typedef struct oriel_ffi_cost {
    uint64_t calls;          /* how often */
    double seconds, longest; /* in all; of one */
} oriel_ffi_cost;
ORIEL_API void oriel_ffi_cuda_costs(oriel_ffi_cost *initialize_p, oriel_ffi_cost *execute_p);
/* Whether graphs have captured calls that the world which is attached cannot use: once. */
ORIEL_API int oriel_ffi_cuda_stale(void);
/* What came of XLA's communicators on the ranks of this process, for tests: see
 * core/device/device.h. */
struct oriel_borrow_counts;
ORIEL_API void oriel_ffi_cuda_borrowed(struct oriel_borrow_counts *borrowed_p);
/* "oriel_after" on GPUs. Of two buffers it makes a copy: for benchmarks, what an execution on the
 * stream costs by itself. */
ORIEL_API void *oriel_ffi_cuda_copy(struct xla_frame *frame);

/* XLA type id of the call site's state: registered by Python through
 * jax.ffi.register_ffi_type under "oriel_site", then read back by the handlers. */
ORIEL_API extern int64_t oriel_ffi_site_type_id;
ORIEL_API extern int64_t oriel_ffi_cuda_site_type_id; /* XLA's CUDA plugin counts for itself */
ORIEL_API extern const void *const oriel_ffi_site_type_info;

/* Makes `comm` the one that programs run on. `ordinals[i]` is the device ordinal
 * XLA reports for local rank i. */
ORIEL_API oriel_status oriel_ffi_attach(oriel_comm *comm, const int *ordinals, int n);
/* Programs fail with a sentence from now on. Waits at most `patience_s` seconds
 * for operations in flight, then revokes the comm so that they end. Call it
 * before the comm goes; nothing attached is fine. Fails with what revoked a comm of GPUs
 * if no program has; that of CPUs has told all, but of messages whose senders did not wait. */
ORIEL_API oriel_status oriel_ffi_detach(double patience_s);

/* Any thread may call these at any time: they hold the comm while they look at it, so that nobody
 * detaches it meanwhile. ORIEL_ERR_INVALID: nothing is attached. The first says what revoked the
 * comm. */
ORIEL_API oriel_status oriel_ffi_check(void);
ORIEL_API oriel_status oriel_ffi_via_check(oriel_via via, oriel_dtype dtype, oriel_redop redop);

/* Makes a kernel known under a number that is the same on all processes; see
 * ORIEL_ENTRY in oriel/detail/kernel_entry.h. `entry` stays for good. */
ORIEL_API oriel_status oriel_ffi_kernel(uint64_t hash, const char *name, void (*entry)(void *));

/* What GPUs run of a kernel that is known already: a cubin, which is copied. */
ORIEL_API oriel_status oriel_ffi_cuda_kernel(uint64_t hash, const char *name, const void *image,
                                             size_t bytes);

/* The same for a host function, on CPUs and GPUs: see oriel/op.h. */
struct oriel_call;
ORIEL_API oriel_status oriel_ffi_op(uint64_t hash, const char *name,
                                    oriel_status (*function)(struct oriel_call *));

/* What runs programs, as errors name it: "jaxlib 0.11.2". */
ORIEL_API void oriel_ffi_runtime(const char *name);

/* A call of this name was lowered: XLA may make one site more for it. */
ORIEL_API void oriel_ffi_lowered(uint64_t name);

#endif
