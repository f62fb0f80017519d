/* How the processes of a job find each other. Every process says hello in the
 * key-value store; process 0, the lead, reads all hellos, makes the heap and
 * publishes where to fetch it (or why it could not); the others fetch it. Two
 * messages per process, whatever the size of the job. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/sys.h"
#include "core/comm.h"
#include "core/store.h"

enum { HEAP_ID = 0 };

struct hello {
    char version[16];
    char host[96];
    int32_t local_ranks;
    uint32_t uid;
};

struct plan {
    int32_t status; /* oriel_status: why there is no heap */
    char text[HEAP_TEXT];
    oriel_ticket ticket;
    uint64_t heap_bytes;
};

/* Processes share memory when they run on one kernel and can reach each other's
 * abstract Unix sockets, which belong to a network namespace. */
static void host_name(char *out, size_t len)
{
    char boot[40] = "unknown";
    char net[40] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file != NULL) {
        if (fscanf(file, "%39s", boot) != 1)
            snprintf(boot, sizeof boot, "unknown");
        fclose(file);
    }
    if (readlink("/proc/self/ns/net", net, sizeof net - 1) < 0)
        net[0] = '\0';
    snprintf(out, len, "%s %s", boot, net);
}

static oriel_status check_hello(int process, const struct hello *mine, const struct hello *theirs)
{
    if (strncmp(mine->version, theirs->version, sizeof mine->version) != 0)
        return oriel_fail(
            ORIEL_ERR_MISMATCH,
            "process 0 runs oriel %.16s and process %d runs %.16s; install one version",
            mine->version, process, theirs->version);
    if (strncmp(mine->host, theirs->host, sizeof mine->host) != 0)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "process %d runs on another machine or in another network namespace than "
                          "process 0; the host fabric shares memory within one machine",
                          process);
    if (mine->uid != theirs->uid)
        return oriel_fail(ORIEL_ERR_AUTH, "process %d runs as uid %u, process 0 as uid %u", process,
                          theirs->uid, mine->uid);
    if (theirs->local_ranks < 1 || theirs->local_ranks > HEAP_MAX_RANKS)
        return oriel_fail(ORIEL_ERR_INVALID, "process %d brings %d ranks; 1 to %d are possible",
                          process, theirs->local_ranks, HEAP_MAX_RANKS);
    return ORIEL_OK;
}

static oriel_status store_get(const oriel_store *kv, const char *job, const char *what, int process,
                              void *value, size_t len)
{
    double limit = oriel_config_number(ORIEL_OPT_INIT_TIMEOUT);
    char key[160];
    size_t got = 0;
    oriel_status st;

    snprintf(key, sizeof key, "%s/%s/%d", job, what, process);
    st = kv->get(kv->ctx, key, limit, value, len, &got);
    if (st == ORIEL_ERR_TIMEOUT)
        return oriel_fail(st, "process %d did not say %s within %.0f s (ORIEL_INIT_TIMEOUT)",
                          process, what, limit);
    if (st == ORIEL_OK && got != len)
        return oriel_fail(ORIEL_ERR_MISMATCH,
                          "key %s holds %zu bytes instead of %zu: is another "
                          "version of oriel in this job?",
                          key, got, len);
    return st;
}

static oriel_status store_set(const oriel_store *kv, const char *job, const char *what, int process,
                              const void *value, size_t len)
{
    char key[160];

    snprintf(key, sizeof key, "%s/%s/%d", job, what, process);
    return kv->set(kv->ctx, key, value, len);
}

static oriel_status join_heap(oriel_comm *comm)
{
    heap_proc *proc = &comm->heap.procs[comm->process];
    oriel_status st = comm->fabric->member_join(&comm->heap.segment, comm->process);

    if (st != ORIEL_OK)
        return st;
    comm->size = (int)comm->heap.header->num_ranks;
    comm->first_rank = proc->first_rank;
    comm->local_ranks = proc->local_ranks;
    comm->oversubscribed = comm->size > oriel_cpu_count();
    proc->pid = (int32_t)getpid();
    atomic_store(&proc->state, PROC_ALIVE);
    return oriel_watch_start(comm);
}

static oriel_status lead_heap(oriel_comm *comm, const int *local_ranks)
{
    heap_header plan;
    oriel_segment segment;
    oriel_status st = oriel_heap_plan(local_ranks, comm->num_processes, &plan);

    if (st != ORIEL_OK)
        return st;
    st = comm->fabric->segment_create(plan.bytes, &segment);
    if (st != ORIEL_OK)
        return st;
    oriel_heap_format(segment, &plan, local_ranks, &comm->heap);
    if (comm->num_processes > 1) {
        st = comm->fabric->port_create(&comm->port);
        if (st != ORIEL_OK)
            return st;
        comm->has_port = 1;
        comm->lead = comm->port.ticket;
    }
    return join_heap(comm);
}

static oriel_status collect_hellos(const oriel_comm *comm, const oriel_store *kv, const char *job,
                                   const struct hello *mine, int *local_ranks)
{
    local_ranks[0] = mine->local_ranks;
    for (int p = 1; p < comm->num_processes; p++) {
        struct hello theirs;
        oriel_status st = store_get(kv, job, "hello", p, &theirs, sizeof theirs);

        if (st == ORIEL_OK)
            st = check_hello(p, mine, &theirs);
        if (st != ORIEL_OK)
            return st;
        local_ranks[p] = theirs.local_ranks;
    }
    return ORIEL_OK;
}

static oriel_status lead(oriel_comm *comm, const oriel_store *kv, const char *job,
                         const struct hello *mine)
{
    struct plan plan = {0};
    int *local_ranks = oriel_sys_now->alloc((size_t)comm->num_processes * sizeof *local_ranks);
    oriel_status st;
    oriel_status told = ORIEL_OK;

    if (local_ranks == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %d processes", comm->num_processes);
    st = collect_hellos(comm, kv, job, mine, local_ranks);
    if (st == ORIEL_OK)
        st = lead_heap(comm, local_ranks);
    oriel_sys_now->release(local_ranks);
    plan.status = (int32_t)st;
    if (st == ORIEL_OK) {
        plan.ticket = comm->lead;
        plan.heap_bytes = comm->heap.segment.bytes;
    } else {
        snprintf(plan.text, sizeof plan.text, "%s", oriel_last_error());
    }
    if (comm->num_processes > 1)
        told = store_set(kv, job, "plan", 0, &plan, sizeof plan);
    return st != ORIEL_OK ? st : told;
}

static oriel_status follow(oriel_comm *comm, const oriel_store *kv, const char *job,
                           const struct hello *mine)
{
    struct plan plan;
    oriel_segment segment;
    oriel_status st = store_set(kv, job, "hello", comm->process, mine, sizeof *mine);

    if (st != ORIEL_OK)
        return st;
    st = store_get(kv, job, "plan", 0, &plan, sizeof plan);
    if (st != ORIEL_OK)
        return st;
    if (plan.status != ORIEL_OK)
        return oriel_fail((oriel_status)plan.status, "%.*s", HEAP_TEXT - 1, plan.text);
    comm->lead = plan.ticket;
    st = comm->fabric->segment_fetch(&plan.ticket, HEAP_ID, plan.heap_bytes,
                                     oriel_config_number(ORIEL_OPT_INIT_TIMEOUT), &segment);
    if (st != ORIEL_OK)
        return st;
    st = oriel_heap_open(segment, &comm->heap);
    if (st != ORIEL_OK) {
        comm->fabric->segment_close(&segment);
        return st;
    }
    if ((int)comm->heap.header->num_processes != comm->num_processes)
        return oriel_fail(ORIEL_ERR_MISMATCH, "num_processes is %d here and %u on process 0",
                          comm->num_processes, comm->heap.header->num_processes);
    return join_heap(comm);
}

/* Process 0 serves the store unless a launcher (or an earlier call) already
 * does: then the address is taken, and it connects like the others. */
static oriel_status open_store(const oriel_comm *comm, const oriel_comm_params *params,
                               oriel_store_server **server_p, oriel_store *kv_p)
{
    const char *address = params->store ? params->store : oriel_config_string(ORIEL_OPT_STORE);
    const char *secret = params->secret ? params->secret : oriel_config_string(ORIEL_OPT_SECRET);

    if (address[0] == '\0')
        return oriel_fail(ORIEL_ERR_INVALID,
                          "num_processes is %d but there is no store to meet in: start with "
                          "`oriel run`, or set ORIEL_STORE (and ORIEL_SECRET)",
                          comm->num_processes);
    *server_p = NULL;
    if (comm->process == 0 && oriel_store_server_create(address, secret, server_p) != ORIEL_OK)
        *server_p = NULL;
    return oriel_store_connect(address, secret, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT), kv_p);
}

oriel_status oriel_bootstrap(oriel_comm *comm, const oriel_comm_params *params)
{
    const char *job = params->job ? params->job : "oriel";
    struct hello mine = {.local_ranks = params->local_ranks, .uid = (uint32_t)geteuid()};
    oriel_store_server *server = NULL;
    oriel_store own = ORIEL_STORE_INIT;
    const oriel_store *kv = params->kv;
    int opened = 0;
    oriel_status st;

    if (strlen(job) > 100)
        return oriel_fail(ORIEL_ERR_INVALID, "job has %zu characters; at most 100", strlen(job));
    snprintf(mine.version, sizeof mine.version, "%s", ORIEL_VERSION_STRING);
    host_name(mine.host, sizeof mine.host);
    comm->fabric = oriel_fabrics[0];
    st = comm->fabric->probe();
    if (st == ORIEL_OK && comm->num_processes > 1 && kv == NULL) {
        st = open_store(comm, params, &server, &own);
        opened = st == ORIEL_OK;
        kv = &own;
    }
    if (st == ORIEL_OK)
        st = comm->process == 0 ? lead(comm, kv, job, &mine) : follow(comm, kv, job, &mine);
    /* Once all are in the heap nobody needs the store any more. */
    if (comm->heap.header != NULL)
        st = oriel_comm_agree(comm, st, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    if (opened)
        oriel_store_disconnect(&own);
    oriel_store_server_destroy(server, 1.0);
    return st;
}
