/* A person's host function; on a CPU it runs like a kernel, by a team of one. */
#include "ops/kernel/host_op.h"

#include <string.h>

#include "base/sys.h"

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

void oriel_host_op_fill(const oriel_kernel_call *from, host_op *op)
{
    const int64_t *values = from->frame.values;

    op->call = (oriel_call){
        .struct_size = sizeof op->call,
        .rank = from->frame.rank,
        .size = from->frame.size,
        .num_operands = from->num_operands,
        .num_results = from->num_buffers - from->num_operands,
        .num_attributes =
            values[0] < KERNEL_MAX_ATTRIBUTES ? (int)values[0] : KERNEL_MAX_ATTRIBUTES,
        .operands = op->buffers,
        .results = op->buffers + from->num_operands,
        .attributes = op->attributes,
        .deadline_s = from->deadline,
    };
    for (int i = 0; i < from->num_buffers; i++)
        fill_buffer(from, i, &op->buffers[i]);
    for (int i = 0; i < op->call.num_attributes; i++)
        fill_attribute(values, i, &op->attributes[i]);
}

void oriel_host_op_call(oriel_kernel_call *from, host_op *op)
{
    from->status = from->kernel->op(&op->call);
    memcpy(from->error, op->call.error, sizeof from->error);
    from->error[sizeof from->error - 1] = '\0';
}

oriel_status oriel_host_op_outcome(const oriel_kernel_call *from)
{
    const char *name = from->kernel->name;

    if (from->status == ORIEL_OK)
        return ORIEL_OK;
    if (from->status < ORIEL_ERR_INVALID || from->status > ORIEL_ERR_AUTH)
        return oriel_fail(ORIEL_ERR_INVALID, "op %s returned %d, which is no status of a failure",
                          name, (int)from->status);
    return oriel_fail(from->status, "op %s: %s", name,
                      from->error[0] ? from->error : oriel_status_name(from->status));
}

/* ---- on a CPU ---------------------------------------------------------------------------- */

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
    host_op op;

    oriel_host_op_fill(from, &op);
    op.call.barrier = call_barrier;
    op.call.failed = call_failed;
    op.call.inner = team;
    oriel_host_op_call(from, &op);
}
