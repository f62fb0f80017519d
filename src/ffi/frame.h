/* Reading one call frame of XLA and answering it. */
#ifndef ORIEL_FFI_FRAME_H
#define ORIEL_FFI_FRAME_H

#include "ffi/site.h"
#include "ffi/xla_abi.h"

/* 1: the frame asked for metadata and has been answered. */
int oriel_xla_answer_metadata(xla_frame *frame, int64_t state_type_id, uint32_t traits);
xla_error *oriel_xla_error(const xla_api *api, oriel_status status);
/* An API call of ours that XLA answered with `error`; NULL: it did not refuse. */
oriel_status oriel_xla_refused(const xla_frame *frame, xla_error *error, const char *what);
oriel_status oriel_xla_attrs(const xla_frame *frame, site_attrs *attrs_p);
/* Of a sendrecv, whose call `attrs_p` is: makes that the message which is sent, and tells the one
 * which is received. Returns 0 if it is another call. */
int oriel_xla_halves(const xla_frame *frame, site_attrs *attrs_p, site_attrs *received_p);
oriel_status oriel_xla_run_id(const xla_frame *frame, int64_t *run_p);
oriel_status oriel_xla_ordinal(const xla_frame *frame, int *ordinal_p);
/* Frames of GPUs alone have a stream. */
oriel_status oriel_xla_stream(const xla_frame *frame, void **stream_p);
/* The frame without what only orders the call (tokens, and the site's last operands) and what is
 * the other half's. Of a call that writes windows the operands that are these stand for the
 * results. */
xla_frame oriel_xla_data(const xla_frame *frame, const oriel_site *site);
/* Bytes of a buffer whose elements have one or more. */
size_t oriel_xla_bytes(const xla_buffer *buffer);
/* The result of a call that writes a window: it says nothing, but that it has. */
oriel_status oriel_xla_ticket(const xla_frame *frame);
/* Fills in what `op` of member `index` of `n` works on; `ragged` is for what it may point to. */
oriel_status oriel_xla_buffers(const xla_frame *frame, int n, int index, oriel_op *op,
                               oriel_ragged *ragged);
/* Whether the call is one on a list of arrays. */
int oriel_xla_lists(const xla_frame *frame, const oriel_op *op);
/* As oriel_xla_buffers, of such a call on CPUs. The caller releases the arrays, on failure too. */
oriel_status oriel_xla_arrays(const xla_frame *frame, int n, int index, oriel_op *op,
                              oriel_array **arrays_p);
/* Fills a result in host memory that the operation does not write: see ffi.h. */
void oriel_xla_unwritten(const xla_frame *frame, int index, const oriel_op *op);
/* The same for a kernel. The caller destroys the call. */
oriel_status oriel_xla_kernel(const xla_frame *frame, const oriel_site *site,
                              const oriel_group *group, oriel_crew *crew,
                              oriel_kernel_call **call_p);
/* The operands of barriers and of ragged_all_to_all share buffers with results. XLA was told so;
 * where it did not follow, the operand is copied. */
typedef oriel_status frame_copy(void *to, const void *from, size_t bytes, void *arg);
oriel_status oriel_xla_aliases(const xla_frame *frame, enum oriel_kind kind, frame_copy *copy,
                               void *arg);
oriel_status oriel_xla_set_site(const xla_frame *frame, int64_t *type_id, oriel_site *site);
oriel_status oriel_xla_site(const xla_frame *frame, int64_t *type_id, oriel_site **site_p);

#endif
