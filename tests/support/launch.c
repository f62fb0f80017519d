#include "support/launch.h"

#include <string.h>

#include "support/check.h"
#include "support/litmus.h"
#include "support/ranks.h"

oriel_status launch_kernel(const launch *how, int rank, const oriel_kernel *kernel,
                           const kernel_buffer *buffers, int operands, int results,
                           const int64_t *values, int num_values)
{
    oriel_group *world = oriel_comm_world(how->comm);
    oriel_key key = {.group = world->hash, .site = 1, .count = how->count};
    oriel_op op = {.kind = ORIEL_KIND_KERNEL};
    oriel_request request;
    oriel_status st = oriel_kernel_call_create(kernel, how->crew, world->n, operands, results,
                                               values, num_values, &op.kernel);

    if (st != ORIEL_OK) {
        oriel_comm_abort(how->comm, st, rank, how->comm->process, "%s", oriel_last_error());
        return st;
    }
    memcpy(op.kernel->buffers, buffers, (size_t)(operands + results) * sizeof *buffers);
    oriel_kernel_call_identify(op.kernel, &how->comm->heap);
    request.op = op;
    CHECK_OK(oriel_request_begin(&request, world, rank, oriel_group_index(world, rank), &key));
    return oriel_request_run(&request);
}

struct litmus_job {
    const launch *how;
    const oriel_kernel *kernel;
    int64_t rounds;
};

static void litmus_rank(oriel_comm *comm, int rank, void *arg)
{
    const struct litmus_job *job = arg;
    int64_t x[LITMUS_X];
    int64_t box[LITMUS_BOX];
    int64_t wrong = -1;
    kernel_buffer buffers[] = {{.data = x, .count = LITMUS_X, .dtype = ORIEL_S64},
                               {.data = box, .count = LITMUS_BOX, .dtype = ORIEL_S64},
                               {.data = &wrong, .count = 1, .dtype = ORIEL_S64}};

    (void)comm;
    for (int i = 0; i < LITMUS_X; i++)
        x[i] = i;
    CHECK_OK(launch_kernel(job->how, rank, job->kernel, buffers, 1, 2, &job->rounds, 1));
    CHECK(wrong == 0, "%s on rank %d: %lld times", job->kernel->name, rank, (long long)wrong);
}

void launch_litmus(launch *how, int rounds)
{
    for (int i = 0; i < litmus_count; i++) {
        struct litmus_job job = {.how = how, .rounds = rounds};

        CHECK_OK(oriel_kernel_register((uint64_t)i + 1, litmus_list[i].name, litmus_list[i].entry));
        job.kernel = oriel_kernel_find((uint64_t)i + 1);
        ranks_run(how->comm, litmus_rank, &job);
        how->count++;
    }
}
