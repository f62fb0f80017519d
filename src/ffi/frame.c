#include <string.h>

#include "base/math.h"
#include "base/status.h"
#include "base/sys.h"
#include "ffi/ffi.h"
#include "ffi/frame.h"
#include "ops/arrays.h"

int oriel_xla_answer_metadata(xla_frame *frame, int64_t state_type_id, uint32_t traits)
{
    xla_metadata_extension *ask = (xla_metadata_extension *)(void *)frame->extension;

    if (ask == NULL || ask->base.type != XLA_EXTENSION_METADATA)
        return 0;
    ask->metadata->version.major = XLA_API_MAJOR;
    ask->metadata->version.minor = XLA_API_MINOR;
    ask->metadata->traits = traits;
    ask->metadata->state_type_id = state_type_id;
    return 1;
}

static int error_code(oriel_status status)
{
    switch (status) {
    case ORIEL_ERR_INVALID:
    case ORIEL_ERR_MISMATCH:
        return XLA_INVALID_ARGUMENT;
    case ORIEL_ERR_TIMEOUT:
        return XLA_DEADLINE_EXCEEDED;
    case ORIEL_ERR_PEER:
        return XLA_UNAVAILABLE;
    case ORIEL_ERR_REVOKED:
        return XLA_ABORTED;
    case ORIEL_ERR_NO_RESOURCE:
        return XLA_RESOURCE_EXHAUSTED;
    case ORIEL_ERR_UNSUPPORTED:
        return XLA_FAILED_PRECONDITION;
    default:
        return XLA_INTERNAL;
    }
}

xla_error *oriel_xla_error(const xla_api *api, oriel_status status)
{
    xla_error_args args = {
        .struct_size = sizeof args, .message = oriel_last_error(), .code = error_code(status)};

    return api->error_create(&args);
}

/* XLA's own text is of no use to a user. */
oriel_status oriel_xla_refused(const xla_frame *frame, xla_error *error, const char *what)
{
    xla_destroy_args args = {.struct_size = sizeof args, .error = error};

    if (error == NULL)
        return ORIEL_OK;
    frame->api->error_destroy(&args);
    return oriel_fail(ORIEL_ERR_UNSUPPORTED, "this jaxlib refused %s", what);
}

static void *find_attr(const xla_frame *frame, const char *name, int type)
{
    for (int64_t i = 0; i < frame->attrs.size; i++) {
        const xla_span *span = frame->attrs.names[i];
        if (span->len == strlen(name) && memcmp(span->ptr, name, span->len) == 0)
            return frame->attrs.types[i] == type ? frame->attrs.items[i] : NULL;
    }
    return NULL;
}

/* Leaves `*value_p` as it is where an optional attribute is absent: not every kind of call has it.
 */
static oriel_status scalar(const xla_frame *frame, const char *name, int optional, int64_t *value_p)
{
    const xla_scalar *attr = find_attr(frame, name, XLA_ATTR_SCALAR);

    if (attr == NULL && optional)
        return ORIEL_OK;
    if (attr == NULL || attr->dtype != XLA_S64)
        return oriel_fail(ORIEL_ERR_INVALID, "the call has no attribute '%s' of type i64", name);
    memcpy(value_p, attr->value, sizeof *value_p);
    return ORIEL_OK;
}

static oriel_status array(const xla_frame *frame, const char *name, int optional,
                          const int64_t **values_p, int64_t *n_p)
{
    const xla_array *attr = find_attr(frame, name, XLA_ATTR_ARRAY);

    if (attr == NULL && optional)
        return ORIEL_OK;
    if (attr == NULL || attr->dtype != XLA_S64)
        return oriel_fail(ORIEL_ERR_INVALID, "the call has no attribute '%s' of type i64[]", name);
    *values_p = attr->data;
    *n_p = (int64_t)attr->size;
    return ORIEL_OK;
}

/* The other attributes of another version may mean something else. */
static oriel_status check_version(const xla_frame *frame)
{
    int64_t version = 0;

    if (scalar(frame, "version", 0, &version) == ORIEL_OK && version == oriel_ffi_version)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_INVALID,
                      "the program was compiled by another version of oriel, whose calls have "
                      "version %lld instead of %lld: compile it anew",
                      (long long)version, (long long)oriel_ffi_version);
}

oriel_status oriel_xla_attrs(const xla_frame *frame, site_attrs *attrs_p)
{
    static const char *const names[] = {"kind",         "world",  "group_size", "name",   "module",
                                        "program",      "reduce", "root",       "kernel", "via",
                                        "communicates", "after",  "into",       "read"};
    enum { REQUIRED = 3 };
    int64_t *fields[] = {&attrs_p->kind,   &attrs_p->world,        &attrs_p->group_size,
                         &attrs_p->name,   &attrs_p->module,       &attrs_p->program,
                         &attrs_p->reduce, &attrs_p->root,         &attrs_p->kernel,
                         &attrs_p->via,    &attrs_p->communicates, &attrs_p->after,
                         &attrs_p->into,   &attrs_p->read};
    oriel_status st = check_version(frame);

    memset(attrs_p, 0, sizeof *attrs_p);
    for (size_t i = 0; st == ORIEL_OK && i < sizeof names / sizeof *names; i++)
        st = scalar(frame, names[i], i >= REQUIRED, fields[i]);
    if (st == ORIEL_OK)
        st = array(frame, "groups", 0, &attrs_p->ranks, &attrs_p->num_ranks);
    if (st == ORIEL_OK)
        st = array(frame, "pairs", 1, &attrs_p->pairs, &attrs_p->num_pairs);
    if (st == ORIEL_OK)
        st = array(frame, "places", 1, &attrs_p->places, &attrs_p->num_places);
    if (st == ORIEL_OK)
        st = array(frame, "values", 1, &attrs_p->values, &attrs_p->num_values);
    if (st == ORIEL_OK)
        st = array(frame, "said", 1, &attrs_p->said, &attrs_p->num_said);
    if (st == ORIEL_OK)
        st = array(frame, "told", 1, &attrs_p->told, &attrs_p->num_told);
    return st;
}

int oriel_xla_halves(const xla_frame *frame, site_attrs *attrs_p, site_attrs *received_p)
{
    site_attrs *r = received_p;

    *r = *attrs_p;
    if (array(frame, "from_groups", 0, &r->ranks, &r->num_ranks) != ORIEL_OK)
        return 0;
    attrs_p->half = SITE_SENT;
    r->half = SITE_RECEIVED;
    r->name = r->program = r->num_told = 0; /* where they are missing the site is refused */
    scalar(frame, "from_name", 1, &r->name);
    scalar(frame, "from_program", 1, &r->program);
    array(frame, "from_told", 1, &r->told, &r->num_told);
    return 1;
}

oriel_status oriel_xla_run_id(const xla_frame *frame, int64_t *run_p)
{
    xla_run_id_args args = {.struct_size = sizeof args, .ctx = frame->ctx};
    oriel_status st = oriel_xla_refused(frame, frame->api->run_id_get(&args), "the run id");

    if (st == ORIEL_OK)
        *run_p = args.run_id;
    return st;
}

oriel_status oriel_xla_ordinal(const xla_frame *frame, int *ordinal_p)
{
    xla_ordinal_args args = {.struct_size = sizeof args, .ctx = frame->ctx};
    oriel_status st =
        oriel_xla_refused(frame, frame->api->ordinal_get(&args), "the device ordinal");

    if (st == ORIEL_OK)
        *ordinal_p = args.ordinal;
    return st;
}

oriel_status oriel_xla_stream(const xla_frame *frame, void **stream_p)
{
    xla_stream_args args = {.struct_size = sizeof args, .ctx = frame->ctx};
    oriel_status st = oriel_xla_refused(frame, frame->api->stream_get(&args), "the stream");

    if (st == ORIEL_OK)
        *stream_p = args.stream;
    return st;
}

static int dtype_of(int xla)
{
    static const signed char table[] = {
        [XLA_PRED] = ORIEL_BOOL + 1,         [XLA_S8] = ORIEL_S8 + 1,
        [XLA_S16] = ORIEL_S16 + 1,           [XLA_S32] = ORIEL_S32 + 1,
        [XLA_S64] = ORIEL_S64 + 1,           [XLA_U8] = ORIEL_U8 + 1,
        [XLA_U16] = ORIEL_U16 + 1,           [XLA_U32] = ORIEL_U32 + 1,
        [XLA_U64] = ORIEL_U64 + 1,           [XLA_F16] = ORIEL_F16 + 1,
        [XLA_F32] = ORIEL_F32 + 1,           [XLA_F64] = ORIEL_F64 + 1,
        [XLA_C64] = ORIEL_C64 + 1,           [XLA_BF16] = ORIEL_BF16 + 1,
        [XLA_C128] = ORIEL_C128 + 1,         [XLA_F8E5M2] = ORIEL_F8E5M2 + 1,
        [XLA_F8E4M3FN] = ORIEL_F8E4M3FN + 1,
    };

    return xla >= 0 && (size_t)xla < sizeof table ? table[xla] - 1 : -1;
}

static size_t elements(const xla_buffer *buffer)
{
    size_t count = 1;

    for (int64_t i = 0; i < buffer->rank; i++)
        count *= (size_t)buffer->dims[i];
    return count;
}

size_t oriel_xla_bytes(const xla_buffer *buffer)
{
    int dtype = dtype_of(buffer->dtype);
    size_t count = elements(buffer);

    /* XLA's other types of a byte: see xla_abi.h. */
    return dtype >= 0 ? count << oriel_dtype_shift((oriel_dtype)dtype) : count;
}

oriel_status oriel_xla_ticket(const xla_frame *frame)
{
    const xla_buffer *ticket = frame->rets.items[0];

    if (frame->rets.size != 1 || ticket->dtype != XLA_S32 || elements(ticket) != 1)
        return oriel_fail(ORIEL_ERR_INVALID, "a call that writes a window has one result, an i32");
    memset(ticket->data, 0, sizeof(int32_t));
    return ORIEL_OK;
}

static void drop_token(xla_buffers *buffers)
{
    const xla_buffer *first = buffers->size > 0 ? buffers->items[0] : NULL;

    if (first != NULL && first->dtype == XLA_TOKEN) {
        buffers->items++;
        buffers->types++;
        buffers->size--;
    }
}

xla_frame oriel_xla_data(const xla_frame *frame, const oriel_site *site)
{
    xla_frame data = *frame;

    drop_token(&data.args);
    drop_token(&data.rets);
    data.args.size -= oriel_least(data.args.size, site->after);
    if (site->into > 0) {
        data.rets = data.args;
        data.rets.size = oriel_least(data.args.size, site->into);
        data.args.size -= data.rets.size;
        data.rets.items += data.args.size;
        data.rets.types += data.args.size;
    }
    if (site->half == SITE_SENT)
        data.rets.size = 0;
    if (site->half == SITE_RECEIVED)
        data.args.size = 0;
    return data;
}

static oriel_status refuse_numbers(const xla_frame *frame, enum oriel_kind kind)
{
    return oriel_fail(ORIEL_ERR_INVALID, "%s: the call has %lld operands and %lld results",
                      oriel_kind_name(kind), (long long)frame->args.size,
                      (long long)frame->rets.size);
}

static oriel_status check_numbers(const xla_frame *frame, const oriel_op *op, int64_t operands,
                                  int64_t results)
{
    if (frame->args.size == operands && frame->rets.size == results)
        return ORIEL_OK;
    return refuse_numbers(frame, op->kind);
}

/* Operand `i` and its result, which have one dtype. */
static oriel_status data_buffers(const xla_frame *frame, int64_t i, oriel_op *op)
{
    const xla_buffer *in = frame->args.items[i];
    const xla_buffer *out = frame->rets.items[i];
    int dtype = dtype_of(in->dtype);

    if (dtype < 0 || in->dtype != out->dtype)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s: XLA dtype %d is not supported, or operand and result differ",
                          oriel_kind_name(op->kind), in->dtype);
    op->dtype = (oriel_dtype)dtype;
    op->send = in->data;
    op->recv = out->data;
    return ORIEL_OK;
}

/* Elements of a block, from an operand and a result of so many. Of a buffer that is no part of the
 * operation the size is that of a block, or as at the root. */
static int find_count(const oriel_op *op, int n, int index, size_t sent, size_t got,
                      size_t *count_p)
{
    size_t parts = oriel_op_scatters(op) ? (size_t)n : 1;
    size_t members = oriel_op_gathers(op) ? (size_t)n : 1;
    size_t count = oriel_op_reads(op, index) ? sent / parts : got;

    *count_p = count;
    return (sent == count * parts || (!oriel_op_reads(op, index) && sent == count)) &&
           (got == count * members || (!oriel_op_writes(op, index) && got == count));
}

static oriel_status block_buffers(const xla_frame *frame, int64_t i, int n, int index, oriel_op *op)
{
    oriel_status st = data_buffers(frame, i, op);
    size_t sent;
    size_t got;

    if (st != ORIEL_OK)
        return st;
    sent = elements(frame->args.items[i]);
    got = elements(frame->rets.items[i]);
    if (!find_count(op, n, index, sent, got, &op->count))
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s: an operand of %zu and a result of %zu elements for %d members",
                          oriel_kind_name(op->kind), sent, got, n);
    return ORIEL_OK;
}

/* The sender's operand or the receiver's result. The sender's result, where it has one, only stands
 * for the call. */
static oriel_status message_buffers(const xla_frame *frame, int index, oriel_op *op)
{
    int sends = index == op->root;
    int stands = sends && frame->rets.size == 1;
    oriel_status st = check_numbers(frame, op, sends, stands || !sends);
    const xla_buffer *data;
    const xla_buffer *out;
    int dtype;

    if (st != ORIEL_OK)
        return st;
    data = sends ? frame->args.items[0] : frame->rets.items[0];
    out = stands ? frame->rets.items[0] : data;
    dtype = dtype_of(data->dtype);
    if (dtype < 0 || data->dtype != out->dtype)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s: XLA dtype %d is not supported, or operand and result differ",
                          oriel_kind_name(op->kind), data->dtype);
    op->dtype = (oriel_dtype)dtype;
    op->count = elements(data);
    op->send = sends ? data->data : NULL;
    op->recv = sends ? NULL : data->data;
    if (stands)
        memset(out->data, 0, elements(out) * oriel_dtype_size(op->dtype));
    return ORIEL_OK;
}

oriel_status oriel_xla_aliases(const xla_frame *frame, enum oriel_kind kind, frame_copy *copy,
                               void *arg)
{
    int first = kind == ORIEL_KIND_RAGGED_ALL_TO_ALL ? 1 : 0;
    oriel_status st = ORIEL_OK;

    if (kind != ORIEL_KIND_RAGGED_ALL_TO_ALL && kind != ORIEL_KIND_BARRIER)
        return ORIEL_OK;
    if (frame->args.size < first + frame->rets.size)
        return refuse_numbers(frame, kind);
    for (int64_t i = 0; i < frame->rets.size && st == ORIEL_OK; i++) {
        const xla_buffer *in = frame->args.items[first + i];
        const xla_buffer *out = frame->rets.items[i];
        int dtype = dtype_of(in->dtype);

        if (in->dtype != out->dtype || elements(in) != elements(out))
            return oriel_fail(
                ORIEL_ERR_INVALID,
                "%s: operand %d has %zu elements of XLA dtype %d, its result %zu of %d",
                oriel_kind_name(kind), first + (int)i, elements(in), in->dtype, elements(out),
                out->dtype);
        if (dtype >= 0 && in->data != out->data)
            st =
                copy(out->data, in->data, elements(in) * oriel_dtype_size((oriel_dtype)dtype), arg);
    }
    return st;
}

/* Elements of a row, the first dimension being the rows; 0: the buffer has none. */
static size_t row_of(const xla_buffer *b)
{
    size_t row = b->rank > 0;

    for (int64_t d = 1; d < b->rank; d++)
        row *= (size_t)b->dims[d];
    return row;
}

static oriel_status ragged_rows(const xla_frame *frame, const oriel_op *op, oriel_ragged *ragged)
{
    const xla_buffer *in = frame->args.items[0];
    const xla_buffer *out = frame->rets.items[0];

    ragged->row = row_of(in);
    if (ragged->row == 0 || row_of(out) != ragged->row)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s: rows of %zu elements in the operand and of %zu in the result",
                          oriel_kind_name(op->kind), ragged->row, row_of(out));
    ragged->send_rows = (size_t)in->dims[0];
    ragged->recv_rows = (size_t)out->dims[0];
    return ORIEL_OK;
}

static oriel_status ragged_buffers(const xla_frame *frame, int n, oriel_op *op,
                                   oriel_ragged *ragged)
{
    const int64_t **arrays[] = {&ragged->input_offsets, &ragged->send_sizes,
                                &ragged->output_offsets, &ragged->recv_sizes};
    enum { FIRST = 2 };
    oriel_status st = check_numbers(frame, op, 6, 1);

    if (st == ORIEL_OK)
        st = data_buffers(frame, 0, op);
    *ragged = (oriel_ragged)ORIEL_RAGGED_INIT;
    if (st == ORIEL_OK)
        st = ragged_rows(frame, op, ragged);
    if (st != ORIEL_OK)
        return st;
    ragged->slices = (int)(elements(frame->args.items[FIRST]) / (size_t)n);
    for (int i = 0; i < 4; i++) {
        const xla_buffer *array = frame->args.items[FIRST + i];

        if (array->dtype != XLA_S64 || elements(array) != (size_t)ragged->slices * (size_t)n)
            return oriel_fail(ORIEL_ERR_INVALID, "%s: operand %d has XLA dtype %d and %zu elements",
                              oriel_kind_name(op->kind), FIRST + i, array->dtype, elements(array));
        *arrays[i] = array->data;
    }
    op->ragged = ragged;
    return ORIEL_OK;
}

static oriel_status kernel_buffer_of(const xla_buffer *from, int number, const char *name,
                                     kernel_buffer *to)
{
    int dtype = dtype_of(from->dtype);

    if (dtype < 0)
        return oriel_fail(ORIEL_ERR_INVALID, "kernel %s: buffer %d has XLA dtype %d", name, number,
                          from->dtype);
    to->data = from->data;
    to->count = elements(from);
    to->dtype = (oriel_dtype)dtype;
    to->ndim = (int)from->rank;
    for (int d = 0; d < to->ndim && d < KERNEL_DIMS; d++)
        to->dims[d] = from->dims[d];
    return ORIEL_OK;
}

oriel_status oriel_xla_kernel(const xla_frame *frame, const oriel_site *site,
                              const oriel_group *group, oriel_crew *crew,
                              oriel_kernel_call **call_p)
{
    int operands = (int)frame->args.size;
    oriel_kernel_call *call;
    oriel_status st =
        oriel_kernel_call_create(site->kernel, crew, group->n, operands, (int)frame->rets.size,
                                 site->values, site->num_values, &call);

    if (st != ORIEL_OK)
        return st;
    for (int i = 0; st == ORIEL_OK && i < call->num_buffers; i++)
        st = kernel_buffer_of(i < operands ? frame->args.items[i] : frame->rets.items[i - operands],
                              i, site->kernel->name, &call->buffers[i]);
    if (st != ORIEL_OK) {
        oriel_kernel_call_destroy(call);
        return st;
    }
    call->said = site->said;
    call->custom.call = site->op.call;
    oriel_kernel_call_identify(call, &group->comm->heap);
    *call_p = call;
    return ORIEL_OK;
}

void oriel_xla_unwritten(const xla_frame *frame, int index, const oriel_op *op)
{
    size_t bytes;

    if (oriel_op_writes(op, index) || op->kind == ORIEL_KIND_MESSAGE)
        return;
    bytes = elements(frame->rets.items[0]) * oriel_dtype_size(op->dtype);
    if (elements(frame->args.items[0]) * oriel_dtype_size(op->dtype) != bytes)
        memset(op->recv, 0, bytes);
    else if (op->recv != op->send && bytes > 0)
        memcpy(op->recv, op->send, bytes);
}

int oriel_xla_lists(const xla_frame *frame, const oriel_op *op)
{
    return oriel_op_forms[op->kind].lists && frame->args.size > 1;
}

oriel_status oriel_xla_arrays(const xla_frame *frame, int n, int index, oriel_op *op,
                              oriel_array **arrays_p)
{
    int64_t num = frame->args.size;
    oriel_status st = check_numbers(frame, op, num, num);
    oriel_op one = *op;
    oriel_array *arrays;

    if (st != ORIEL_OK)
        return st;
    arrays = *arrays_p = oriel_sys_now->alloc((size_t)num * sizeof *arrays);
    if (arrays == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a list of %lld arrays",
                          (long long)num);
    for (int64_t i = 0; i < num && st == ORIEL_OK; i++) {
        st = block_buffers(frame, i, n, index, &one);
        arrays[i] = (oriel_array){.send = one.send, .recv = one.recv, .count = one.count};
        if (i == 0)
            op->dtype = one.dtype;
        if (st == ORIEL_OK && one.dtype != op->dtype)
            st = oriel_fail(ORIEL_ERR_INVALID, "%s: operand 0 has dtype %s, and operand %lld %s",
                            oriel_kind_name(op->kind), oriel_dtype_name(op->dtype), (long long)i,
                            oriel_dtype_name(one.dtype));
    }
    return st == ORIEL_OK ? oriel_arrays_describe(op, arrays, (int)num) : st;
}

oriel_status oriel_xla_buffers(const xla_frame *frame, int n, int index, oriel_op *op,
                               oriel_ragged *ragged)
{
    oriel_status st;

    if (op->kind == ORIEL_KIND_BARRIER)
        return check_numbers(frame, op, frame->args.size, frame->args.size);
    if (op->kind == ORIEL_KIND_RAGGED_ALL_TO_ALL)
        return ragged_buffers(frame, n, op, ragged);
    if (op->kind == ORIEL_KIND_MESSAGE)
        return message_buffers(frame, index, op);
    st = check_numbers(frame, op, 1, 1);
    return st == ORIEL_OK ? block_buffers(frame, 0, n, index, op) : st;
}

oriel_status oriel_xla_set_site(const xla_frame *frame, int64_t *type_id, oriel_site *site)
{
    xla_state_args args = {.struct_size = sizeof args,
                           .ctx = frame->ctx,
                           .stage = XLA_STAGE_INSTANTIATE,
                           .type_id = type_id,
                           .state = site};

    return oriel_xla_refused(frame, frame->api->state_set(&args), "to keep a call site");
}

oriel_status oriel_xla_site(const xla_frame *frame, int64_t *type_id, oriel_site **site_p)
{
    xla_state_args args = {.struct_size = sizeof args,
                           .ctx = frame->ctx,
                           .stage = XLA_STAGE_INSTANTIATE,
                           .type_id = type_id};
    oriel_status st =
        oriel_xla_refused(frame, frame->api->state_get(&args), "to hand back a call site");

    if (st == ORIEL_OK)
        *site_p = args.state;
    return st;
}
