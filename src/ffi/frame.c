#include <string.h>

#include "base/status.h"
#include "ffi/frame.h"

int frame_answer_metadata(xla_frame *frame, int64_t state_type_id)
{
    xla_metadata_extension *ask = (xla_metadata_extension *)(void *)frame->extension;

    if (ask == NULL || ask->base.type != XLA_EXTENSION_METADATA)
        return 0;
    ask->metadata->version.major = XLA_API_MAJOR;
    ask->metadata->version.minor = XLA_API_MINOR;
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

xla_error *frame_error(const xla_api *api, oriel_status status)
{
    xla_error_args args = {
        .struct_size = sizeof args, .message = oriel_last_error(), .code = error_code(status)};

    return api->error_create(&args);
}

/* An API call of ours that XLA refused: its own text is of no use to a user. */
static oriel_status refused(const xla_frame *frame, xla_error *error, const char *what)
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

static oriel_status scalar(const xla_frame *frame, const char *name, int64_t *value_p)
{
    const xla_scalar *attr = find_attr(frame, name, XLA_ATTR_SCALAR);

    if (attr == NULL || attr->dtype != XLA_S64)
        return oriel_fail(ORIEL_ERR_INVALID, "the call has no attribute '%s' of type i64", name);
    memcpy(value_p, attr->value, sizeof *value_p);
    return ORIEL_OK;
}

oriel_status frame_attrs(const xla_frame *frame, site_attrs *attrs_p)
{
    static const char *const names[] = {"module", "site", "world", "group_size", "reduce"};
    int64_t *fields[] = {&attrs_p->module, &attrs_p->site, &attrs_p->world, &attrs_p->group_size,
                         &attrs_p->reduce};
    const xla_array *groups = find_attr(frame, "groups", XLA_ATTR_ARRAY);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        oriel_status st = scalar(frame, names[i], fields[i]);
        if (st != ORIEL_OK)
            return st;
    }
    if (groups == NULL || groups->dtype != XLA_S64)
        return oriel_fail(ORIEL_ERR_INVALID, "the call has no attribute 'groups' of type i64[]");
    attrs_p->ranks = groups->data;
    attrs_p->num_ranks = (int64_t)groups->size;
    return ORIEL_OK;
}

oriel_status frame_run_id(const xla_frame *frame, int64_t *run_p)
{
    xla_run_id_args args = {.struct_size = sizeof args, .ctx = frame->ctx};
    oriel_status st = refused(frame, frame->api->run_id_get(&args), "the run id");

    if (st == ORIEL_OK)
        *run_p = args.run_id;
    return st;
}

oriel_status frame_ordinal(const xla_frame *frame, int *ordinal_p)
{
    xla_ordinal_args args = {.struct_size = sizeof args, .ctx = frame->ctx};
    oriel_status st = refused(frame, frame->api->ordinal_get(&args), "the device ordinal");

    if (st == ORIEL_OK)
        *ordinal_p = args.ordinal;
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

oriel_status frame_buffers(const xla_frame *frame, const void **in_p, void **out_p, size_t *count_p,
                           oriel_dtype *dtype_p)
{
    const xla_buffer *in;
    const xla_buffer *out;
    size_t count = 1;
    int dtype;

    if (frame->args.size != 1 || frame->rets.size != 1)
        return oriel_fail(ORIEL_ERR_INVALID, "the call has %lld operands and %lld results",
                          (long long)frame->args.size, (long long)frame->rets.size);
    in = frame->args.items[0];
    out = frame->rets.items[0];
    dtype = dtype_of(in->dtype);
    if (dtype < 0 || in->dtype != out->dtype || in->rank != out->rank)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "XLA dtype %d is not supported, or operand and result "
                          "differ",
                          in->dtype);
    for (int64_t i = 0; i < in->rank; i++)
        count *= (size_t)in->dims[i];
    *in_p = in->data;
    *out_p = out->data;
    *count_p = count;
    *dtype_p = (oriel_dtype)dtype;
    return ORIEL_OK;
}

oriel_status frame_set_site(const xla_frame *frame, int64_t *type_id, oriel_site *site)
{
    xla_state_args args = {.struct_size = sizeof args,
                           .ctx = frame->ctx,
                           .stage = XLA_STAGE_INSTANTIATE,
                           .type_id = type_id,
                           .state = site};

    return refused(frame, frame->api->state_set(&args), "to keep a call site");
}

oriel_status frame_site(const xla_frame *frame, int64_t *type_id, oriel_site **site_p)
{
    xla_state_args args = {.struct_size = sizeof args,
                           .ctx = frame->ctx,
                           .stage = XLA_STAGE_INSTANTIATE,
                           .type_id = type_id};
    oriel_status st = refused(frame, frame->api->state_get(&args), "to hand back a call site");

    if (st == ORIEL_OK)
        *site_p = args.state;
    return st;
}
