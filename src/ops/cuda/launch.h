/* One member's call as a kernel on a stream. */
#ifndef ORIEL_OPS_CUDA_LAUNCH_H
#define ORIEL_OPS_CUDA_LAUNCH_H

#include "core/device/device.h"
#include "ops/kernel/kernel.h"
#include "ops/op.h"

/* Checks the call, chooses the kernel and its grid, and launches. Returns at once; no
 * allocation, no lock, no system call but the driver's. */
oriel_status oriel_launch(oriel_group *group, int rank, const oriel_op *op, void *stream);
/* The same for ragged_all_to_all, whose op has no arrays. */
oriel_status oriel_launch_ragged(oriel_group *group, int rank, const oriel_op *op,
                                 const oriel_ragged_on *ragged, void *stream);
/* Before a launch of the same call, or before a replay of the graph that has it: fails with
 * what revoked the comm, and has others map buffers that are new. Waits for nobody. A call
 * of ragged_all_to_all needs its rows alone. */
oriel_status oriel_launch_prepare(oriel_group *group, int rank, const oriel_op *op, void *stream);

/* For kernel_on.c. Puts a kernel on a stream in the rank's context; early: it may begin while
 * the one before it there still runs, for whose end it waits (see memory.cuh). */
oriel_status oriel_launch_start(const oriel_device_rank *self, cu_function function, unsigned ctas,
                                unsigned threads, int early, void **params, void *stream);
/* What the meetings of a person's kernel are told: `call` is zeroed, and has
 * no buffers. Fails with what revoked the comm. */
oriel_status oriel_launch_describe(oriel_group *group, int rank, oriel_kernel_call *kernel,
                                   device_call *call);

/* The same of any call; no windows. Members on other machines have no heap to be seen: this
 * rank's own stands there. */
void oriel_launch_fill(const oriel_group *group, int rank, const oriel_op *op,
                       const oriel_record *record, const oriel_ragged_on *ragged,
                       device_call *call);

/* ---- groups that span machines (span.c) ---------------------------------------------------- */

/* A checked call, of which launch.c has taken note; `ragged` NULL for all others. */
oriel_status oriel_span_launch(oriel_group *group, int rank, const oriel_op *op,
                               const oriel_ragged_on *ragged, const oriel_record *record,
                               void *stream);
/* Whether a kernel or host function can run on the group, if it spans machines. */
oriel_status oriel_span_check(const oriel_group *group, const oriel_kernel_call *call);
/* In the rank's context: all have come, with the same call, or what follows on the stream finds
 * an error in the rank's table. `call` has no buffers. */
oriel_status oriel_span_meet(oriel_group *group, int rank, const device_call *call, void *stream);

/* ---- kernels of one's own (kernel_on.c) -------------------------------------------------- */

/* Local: what GPUs run of a kernel known under `hash`; the image is copied, and kept. */
oriel_status oriel_kernel_on_register(uint64_t hash, const char *name, const void *image,
                                      size_t bytes);
/* As oriel_launch_prepare: loads the kernel and writes its frame when they are new, and has
 * others map new buffers. */
oriel_status oriel_kernel_on_prepare(oriel_group *group, int rank, oriel_kernel_call *call,
                                     void *stream);
oriel_status oriel_kernel_on_launch(oriel_group *group, int rank, oriel_kernel_call *call,
                                    void *stream);

/* Local: where buffers have their copies in the arena, none ending where another begins; and how
 * long the arena must be. The same on all members, since they have the same shapes. */
size_t oriel_kernel_on_lay_out(oriel_kernel_call *call);

/* ---- host functions (op_on.c) --------------------------------------------------------------- */

oriel_status oriel_op_on_prepare(oriel_group *group, int rank, oriel_kernel_call *call);
oriel_status oriel_op_on_launch(oriel_group *group, int rank, oriel_kernel_call *call,
                                void *stream);
/* In the rank's context: a meeting of all members at `step` of the same call (see
 * core/device/device.h); and what poisons a result if the rank has failed by then. */
oriel_status oriel_launch_step(oriel_group *group, int rank, oriel_kernel_call *call, int step,
                               void *stream);
oriel_status oriel_launch_verdict(oriel_group *group, int rank, oriel_kernel_call *call,
                                  const kernel_buffer *result, void *stream);
/* Whether a call of this rank would fail now. */
int oriel_launch_failed(const oriel_group *group, int rank);

/* ---- streams of `rank`'s device (stream.c) -------------------------------------------------- */

oriel_status oriel_stream_copy(const oriel_comm *comm, int rank, void *to, const void *from,
                               size_t bytes, void *stream);
/* Whether something on it has not ended yet. */
int oriel_stream_busy(const oriel_comm *comm, int rank, void *stream);
/* Waits for what is on it and says what failed there. */
oriel_status oriel_stream_settle(oriel_comm *comm, int rank, void *stream);

#endif
