/* Operations whose sizes all members know: what a member shows to the others is its payload. */
#include <string.h>

#include "base/sys.h"
#include "ops/arrays.h"
#include "ops/host/request.h"

static oriel_question ask(const oriel_request *request, enum oriel_meeting meeting)
{
    return (oriel_question){
        .kind = request->op.kind,
        .meeting = meeting,
        .block = request->record.bytes,
        .arrays = request->op.num_arrays,
        .payload = oriel_op_widest(&request->op, request->group->n),
    };
}

static oriel_status begin(oriel_request *request)
{
    (void)request;
    return ORIEL_OK;
}

static int keep(oriel_request *request)
{
    oriel_op *op = &request->op;
    size_t pairs = 2 * (size_t)op->num_pairs * sizeof *op->pairs;
    size_t list = (size_t)op->num_arrays * sizeof *op->arrays;

    if (pairs + list == 0)
        return 1;
    request->arrays = oriel_sys_now->alloc(pairs + list);
    if (request->arrays == NULL)
        return 0;
    if (list > 0) /* no kind has both */
        op->arrays = memcpy(request->arrays, op->arrays, list);
    else
        op->pairs = memcpy(request->arrays, op->pairs, pairs);
    return 1;
}

static oriel_status alone(oriel_request *request)
{
    oriel_op_take(&request->op, 1, 0, &request->op.send, 0, request->record.bytes);
    return ORIEL_OK;
}

/* ---- in the lane --------------------------------------------------------------------- */

static size_t brings(const oriel_request *request)
{
    return oriel_op_widest(&request->op, request->group->n);
}

static char *payload_of(const oriel_request *request, int index)
{
    return oriel_lane_payload(request->member, request->key.count, index, request->brings);
}

/* Nobody reads the own block of what is scattered; of most members of a scatter nothing. */
static void put(oriel_request *request)
{
    const oriel_op *op = &request->op;
    size_t bytes = oriel_op_payload(op, request->group->n, request->index);
    size_t own = oriel_op_part(op, request->index);
    size_t after = oriel_op_part(op, request->index + 1);
    char *to = payload_of(request, request->index);

    if (op->arrays != NULL) {
        oriel_arrays_show(op, request->group->n, request->index, to, request->stream);
        return;
    }
    if (bytes == 0 || !oriel_op_scatters(op)) {
        oriel_op_copy(to, op->send, bytes, request->stream);
        return;
    }
    oriel_op_copy(to, op->send, own, request->stream);
    oriel_op_copy(to + after, (const char *)op->send + after, bytes - after, request->stream);
}

static oriel_status take(oriel_request *request)
{
    const oriel_op *op = &request->op;
    size_t part = oriel_op_part(op, request->index);
    int from = oriel_op_source(op, request->index);
    int n = request->group->n;
    const void *src[HEAP_MAX_RANKS];

    if (request->record.bytes == 0)
        return ORIEL_OK;
    if (from >= 0)
        src[from] = payload_of(request, from) + part;
    for (int i = 0; from == OP_EVERYBODY && i < n; i++)
        src[i] = payload_of(request, i) + part;
    src[request->index] = oriel_op_own(op, request->index);
    oriel_op_take(op, n, request->index, src, 0, request->record.bytes);
    return ORIEL_OK;
}

const oriel_moves oriel_moves_fixed = {
    .ask = ask,
    .begin = begin,
    .keep = keep,
    .alone = alone,
    .brings = brings,
    .put = put,
    .take = take,
};
