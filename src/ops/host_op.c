/* A person's host function, run like a kernel by a team of one. */
#include <string.h>

#include "base/sys.h"
#include "oriel/op.h"
#include "ops/kernel.h"

/* The attributes of an op: how many, then for each where its name begins, its type and
 * its value, a string's being where it begins; in bytes from the start. */
enum { ATTRIBUTE_WORDS = 3 };

static void fill_attribute(const int64_t *values, int i, oriel_call_attribute *attribute_p)
{
    const int64_t *at = values + 1 + ATTRIBUTE_WORDS * i;

    attribute_p->name = (const char *)values + at[0];
    attribute_p->type = (oriel_call_type)at[1];
    attribute_p->integer = at[2];
    if (attribute_p->type == ORIEL_CALL_REAL)
        memcpy(&attribute_p->real, &at[2], sizeof attribute_p->real);
    else
        attribute_p->real = (double)at[2];
    attribute_p->string =
        attribute_p->type == ORIEL_CALL_STRING ? (const char *)values + at[2] : NULL;
}

static void fill_buffer(const oriel_kernel_call *from, int i, oriel_call_buffer *buffer_p)
{
    const kernel_buffer *buffer = &from->buffers[i];

    *buffer_p = (oriel_call_buffer){
        .data = from->reach[i].peers[from->frame.rank],
        .bytes = from->reach[i].bytes,
        .count = buffer->count,
        .dtype = buffer->dtype,
        .ndim = buffer->ndim,
        .peers = from->reach[i].peers,
    };
    memcpy(buffer_p->dims, buffer->dims, sizeof buffer_p->dims);
}

static oriel_status call_barrier(oriel_call *call)
{
    oriel_team *team = call->inner;

    return team->frame->calls->barrier(team) == 0 ? ORIEL_OK : ORIEL_ERR_REVOKED;
}

static int call_failed(oriel_call *call)
{
    oriel_team *team = call->inner;

    return team->frame->calls->failed(team);
}

void oriel_host_op_run(oriel_team *team)
{
    oriel_kernel_call *from = team->frame->inner;
    const int64_t *values = team->frame->values;
    oriel_call_buffer buffers[KERNEL_MAX_BUFFERS];
    oriel_call_attribute attributes[KERNEL_MAX_ATTRIBUTES];
    oriel_call call = {
        .struct_size = sizeof call,
        .rank = team->frame->rank,
        .size = team->frame->size,
        .num_operands = from->num_operands,
        .num_results = from->num_buffers - from->num_operands,
        .num_attributes =
            values[0] < KERNEL_MAX_ATTRIBUTES ? (int)values[0] : KERNEL_MAX_ATTRIBUTES,
        .operands = buffers,
        .results = buffers + from->num_operands,
        .attributes = attributes,
        .deadline_s = from->deadline,
        .barrier = call_barrier,
        .failed = call_failed,
        .inner = team,
    };

    for (int i = 0; i < from->num_buffers; i++)
        fill_buffer(from, i, &buffers[i]);
    for (int i = 0; i < call.num_attributes; i++)
        fill_attribute(values, i, &attributes[i]);
    from->status = from->kernel->op(&call);
    memcpy(from->error, call.error, sizeof from->error);
    from->error[sizeof from->error - 1] = '\0';
}
