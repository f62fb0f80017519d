/* labels: valgrind-soak */
/* processes: 3 */
/* Kernels between processes whose operands and results lie in windows, of some ranks or of all, or
 * in none; then one that is wrong: kernel_windows [local ranks] [freed] */
#include <stdlib.h>
#include <string.h>

#include "oriel/kernel.h"
#include "support/check.h"
#include "support/launch.h"
#include "support/process.h"
#include "support/ranks.h"

enum { COUNT = 3000, ROUNDS = 20 };

struct job {
    launch how;
    const oriel_kernel *kernel;
    oriel_window *x, *y;
    int round;
    float *wrong;     /* an operand of rank 0 ... */
    const char *says; /* ... and what is said of it */
};

/* In this round: bit 0 for x, bit 1 for y. */
static int in_window(const struct job *job, int rank)
{
    return (job->round + rank) % 5 == 4 ? 3 : (job->round + rank) % 4;
}

static float *part_of(oriel_window *window, int rank)
{
    void *ptr = NULL;

    CHECK_OK(oriel_window_ptr(window, rank, &ptr));
    return ptr;
}

/* y = the sum of all ranks' x. */
static void sum_entry(oriel_team *team)
{
    const oriel_frame *frame = team->frame;
    float *y = frame->buffers[1].peers[frame->rank];

    team->frame->calls->barrier(team);
    for (size_t i = team->thread; i < COUNT; i += team->threads) {
        float total = 0;

        for (int32_t r = 0; r < frame->size; r++)
            total += ((const float *)frame->buffers[0].peers[r])[i];
        y[i] = total;
    }
    team->frame->calls->barrier(team);
}

static void call(oriel_comm *comm, int rank, void *arg)
{
    const struct job *job = arg;
    int where = in_window(job, rank);
    int n = oriel_comm_size(comm);
    float *plain = malloc(2 * COUNT * sizeof *plain);
    float *x = where & 1 ? part_of(job->x, rank) : plain;
    float *y = where & 2 ? part_of(job->y, rank) : plain + COUNT;
    kernel_buffer buffers[] = {{.data = x, .count = COUNT, .dtype = ORIEL_F32},
                               {.data = y, .count = COUNT, .dtype = ORIEL_F32}};

    CHECK(plain != NULL, "out of memory");
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(i + rank + job->round);
        y[i] = -1;
    }
    CHECK_OK(launch_kernel(&job->how, rank, job->kernel, buffers, 1, 1, NULL, 0));
    for (int i = 0; i < COUNT; i++)
        CHECK(y[i] == (float)(n * (i + job->round) + n * (n - 1) / 2), "element %d is %g", i,
              (double)y[i]);
    free(plain);
}

/* What lies in the part of another rank is memory like any other. */
static void borrow(oriel_comm *comm, int rank, void *arg)
{
    const struct job *job = arg;
    int n = oriel_comm_size(comm);
    float y[COUNT] = {0};
    kernel_buffer buffers[] = {
        {.data = part_of(job->x, (rank + 1) % n), .count = COUNT, .dtype = ORIEL_F32},
        {.data = y, .count = COUNT, .dtype = ORIEL_F32}};

    CHECK_OK(launch_kernel(&job->how, rank, job->kernel, buffers, 1, 1, NULL, 0));
    for (int i = 0; i < COUNT; i++)
        CHECK(y[i] == (float)(n * i + n * (n - 1) / 2), "element %d is %g", i, (double)y[i]);
}

/* The result is the operand: nobody reads what has been written already. */
static void in_place(oriel_comm *comm, int rank, void *arg)
{
    const struct job *job = arg;
    int n = oriel_comm_size(comm);
    float *x = part_of(job->x, rank);
    kernel_buffer buffers[] = {{.data = x, .count = COUNT, .dtype = ORIEL_F32},
                               {.data = x, .count = COUNT, .dtype = ORIEL_F32}};

    CHECK_OK(launch_kernel(&job->how, rank, job->kernel, buffers, 1, 1, NULL, 0));
    for (int i = 0; i < COUNT; i++)
        CHECK(x[i] == (float)(n * i + n * (n - 1) / 2), "in place, element %d is %g", i,
              (double)x[i]);
}

static void fill(oriel_comm *comm, int rank, void *arg)
{
    const struct job *job = arg;
    float *x = part_of(job->x, rank);

    (void)comm;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i + rank);
}

/* Past the end of a window, or in one that was freed: the rank that has it says so, and nobody is
 * left waiting. */
static void refused(oriel_comm *comm, int rank, void *arg)
{
    const struct job *job = arg;
    float y[COUNT] = {0};
    float *x = rank == 0 ? job->wrong : y;
    kernel_buffer buffers[] = {{.data = x, .count = COUNT, .dtype = ORIEL_F32},
                               {.data = y, .count = COUNT, .dtype = ORIEL_F32}};

    (void)comm;
    CHECK(launch_kernel(&job->how, rank, job->kernel, buffers, 1, 1, NULL, 0) != ORIEL_OK,
          "an operand in no window");
    if (rank == 0)
        check_says("operand 0 of kernel sum: it ", job->says, NULL);
}

int main(int argc, char **argv)
{
    struct job job = {0};
    oriel_comm *comm;

    setenv("ORIEL_ARENA", "64M", 0); /* of each rank; valgrind has few addresses to give away */
    setenv("ORIEL_WINDOWS", "64M", 0);
    comm = process_comm(process_argument(argc, argv, 1, 2), 60.0, NULL);
    job.how.comm = comm;
    CHECK_OK(oriel_crew_create(&job.how.crew));
    CHECK_OK(oriel_kernel_register(1, "sum", sum_entry));
    job.kernel = oriel_kernel_find(1);
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), COUNT * sizeof(float), &job.x));
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), COUNT * sizeof(float), &job.y));
    for (job.round = 0; job.round < ROUNDS; job.round++) {
        ranks_run(comm, call, &job);
        job.how.count++;
    }
    ranks_run(comm, fill, &job);
    CHECK_OK(oriel_comm_barrier(comm));
    ranks_run(comm, borrow, &job);
    job.how.count++;
    ranks_run(comm, in_place, &job);
    job.how.count++;
    job.wrong = part_of(job.x, 0) + 1;
    job.says = "has 12000 bytes, of which window 1 holds 11996";
    if (process_argument(argc, argv, 2, 0)) {
        job.wrong = part_of(job.x, 0);
        job.says = "among the windows of rank 0, but in none that is held: it was freed";
        oriel_window_free(job.x);
    }
    ranks_run(comm, refused, &job);
    oriel_crew_destroy(job.how.crew);
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
