#include "support/ranks.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"

enum { MAX_RANKS = 64 };

struct job {
    oriel_comm *comm;
    int rank;
    void (*body)(oriel_comm *comm, int rank, void *arg);
    void *arg;
};

static const char *const options[] = {
    "ORIEL_STAGING",    "ORIEL_CHUNK", "ORIEL_DIRECT", "ORIEL_SPIN",  "ORIEL_TIMEOUT",
    "ORIEL_WARN_AFTER", "ORIEL_TEAM",  "ORIEL_JITTER", "ORIEL_ARENA", "ORIEL_WINDOWS"};

oriel_comm *ranks_comm(int n, double timeout_s, ...)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    oriel_comm *comm = NULL;
    const char *name;
    va_list args;

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        unsetenv(options[i]);
    setenv("ORIEL_WINDOWS", "1G", 1); /* valgrind has too few addresses for the default */
    va_start(args, timeout_s);
    while ((name = va_arg(args, const char *)) != NULL)
        setenv(name, va_arg(args, const char *), 1);
    va_end(args);
    params.process_id = 0;
    params.num_processes = 1;
    params.local_ranks = n;
    params.timeout_s = timeout_s;
    CHECK_OK(oriel_comm_create(&params, &comm));
    return comm;
}

static void *job_main(void *arg)
{
    struct job *job = arg;

    job->body(job->comm, job->rank, job->arg);
    return NULL;
}

void ranks_run(oriel_comm *comm, void (*body)(oriel_comm *comm, int rank, void *arg), void *arg)
{
    pthread_t threads[MAX_RANKS];
    struct job jobs[MAX_RANKS];
    int n = oriel_comm_local_size(comm);

    CHECK(n <= MAX_RANKS, "%d ranks", n);
    for (int i = 0; i < n; i++) {
        jobs[i] = (struct job){comm, oriel_comm_first_rank(comm) + i, body, arg};
        CHECK(pthread_create(&threads[i], NULL, job_main, &jobs[i]) == 0, "rank %d", i);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}
