/* The life of a comm: everything that it consists of is made here, and freed in the opposite
 * order. */
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"
#include "core/start/fabrics.h"
#include "core/machines/bridge.h"
#include "core/memory/arena.h"
#include "core/memory/window.h"
#include "core/protocol/group.h"
#include "core/start/bootstrap.h"
#include "core/start/launcher.h"

/* A launcher is asked only by a caller that says nothing at all about its place. */
static oriel_status complete_place(oriel_comm_params *params)
{
    if (params->num_processes == 0 && params->process_id == -1)
        return oriel_place_find(&params->process_id, &params->num_processes);
    if (params->num_processes == 0) {
        params->num_processes = (int)oriel_config_number(ORIEL_OPT_NUM_PROCESSES);
        if (params->num_processes == -1)
            params->num_processes = 1;
    }
    if (params->process_id == -1)
        params->process_id = (int)oriel_config_number(ORIEL_OPT_PROCESS_ID);
    if (params->process_id == -1 && params->num_processes == 1)
        params->process_id = 0;
    return ORIEL_OK;
}

/* Fills what the caller left to the environment. */
static oriel_status complete_params(const oriel_comm_params *given, oriel_comm_params *params_p)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    oriel_status st;

    if (given != NULL) {
        if (given->struct_size != sizeof params)
            return oriel_fail(ORIEL_ERR_INVALID,
                              "params.struct_size is %zu instead of %zu: start "
                              "from ORIEL_COMM_PARAMS_INIT",
                              given->struct_size, sizeof params);
        params = *given;
    }
    st = complete_place(&params);
    if (st != ORIEL_OK)
        return st;
    if (params.local_ranks == 0)
        params.local_ranks = 1;
    if (params.timeout_s == 0.0)
        params.timeout_s = oriel_config_number(ORIEL_OPT_TIMEOUT);
    if (params.num_processes < 1 || params.num_processes > HEAP_MAX_RANKS)
        return oriel_fail(ORIEL_ERR_INVALID, "num_processes is %d; 1 to %d are possible",
                          params.num_processes, HEAP_MAX_RANKS);
    if (params.process_id < 0 || params.process_id >= params.num_processes)
        return oriel_fail(ORIEL_ERR_INVALID, "process_id is %d of %d processes", params.process_id,
                          params.num_processes);
    if (params.local_ranks < 1 || params.local_ranks > HEAP_MAX_RANKS)
        return oriel_fail(ORIEL_ERR_INVALID, "local_ranks is %d; 1 to %d are possible",
                          params.local_ranks, HEAP_MAX_RANKS);
    if (!(params.timeout_s > 0.0))
        return oriel_fail(ORIEL_ERR_INVALID, "timeout_s is %g; it must be positive",
                          params.timeout_s);
    if (params.kv != NULL && (params.kv->struct_size != sizeof *params.kv ||
                              params.kv->set == NULL || params.kv->get == NULL))
        return oriel_fail(ORIEL_ERR_INVALID, "params.kv lacks set or get, or its struct_size is "
                                             "wrong: start from ORIEL_STORE_INIT");
    *params_p = params;
    return ORIEL_OK;
}

/* Undoes whatever part of the comm exists; waits for no peer. Kernels that do not end keep
 * what they use, with all that hangs on it. */
static void comm_free(oriel_comm *comm)
{
    /* Without its life lock the place in the heap is somebody else's. */
    if (comm->size > 0) {
        atomic_store(&comm->heap.procs[comm->process].state, PROC_LEFT);
        oriel_comm_ring_all(comm);
    }
    oriel_watch_stop(comm);
    oriel_bridge_close(comm);
    if (!oriel_devices_close(comm))
        return;
    oriel_windows_free(comm);
    oriel_arena_free(comm);
    oriel_groups_free(comm);
    if (comm->has_port)
        comm->fabric->port_close(&comm->port);
    if (comm->heap.header != NULL)
        comm->fabric->segment_close(&comm->heap.segment);
    pthread_mutex_destroy(&comm->lock);
    for (int i = 0; atomic_load(&comm->free_started) != NULL && i < comm->local_ranks; i++)
        atomic_load (&comm->free_started)(comm->started[i]);
    oriel_sys_now->release(comm->started);
    oriel_sys_now->release(comm);
}

static oriel_status make_local(oriel_comm *comm)
{
    int ranks[HEAP_MAX_RANKS];

    comm->started = oriel_sys_now->alloc((size_t)comm->local_ranks * sizeof *comm->started);
    if (comm->started == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %d ranks", comm->local_ranks);
    for (int r = 0; r < comm->size; r++)
        ranks[r] = r;
    return oriel_group_intern(comm, ranks, comm->size, &comm->world);
}

/* A process that has GPUs shows them before all meet; if any does, all meet once more. */
static oriel_status make_world(oriel_comm *comm, const oriel_comm_params *params)
{
    double timeout = oriel_config_number(ORIEL_OPT_INIT_TIMEOUT);
    const oriel_device_fabric *fabric = NULL;
    oriel_status st = make_local(comm);
    int gpus = 0;

    if (st == ORIEL_OK && comm->on_gpus)
        st = oriel_device_fabric_choose((int)comm->heap.header->num_machines, &fabric);
    if (st == ORIEL_OK && comm->on_gpus)
        st = oriel_devices_prepare(comm, fabric, params->devices);
    st = oriel_comm_agree(comm, st, timeout);
    if (st == ORIEL_OK) /* by now all have found out */
        comm->world->facts.reads = oriel_group_reads(comm->world);
    for (int r = 0; st == ORIEL_OK && r < comm->size; r++)
        gpus |= oriel_device_card(&comm->heap, r)->bytes > 0;
    if (gpus && st == ORIEL_OK)
        st = oriel_comm_agree(comm, oriel_devices_connect(comm), timeout);
    return gpus && st == ORIEL_OK ? oriel_experimental_hook.open(comm) : st;
}

/* Segment 0 is the heap, and the last number is the arena's. */
static const oriel_segment *find_segment(void *ctx, uint64_t id)
{
    static _Thread_local oriel_segment of_device;
    oriel_comm *comm = ctx;

    if (id == 0)
        return &comm->heap.segment;
    if (id == ARENA_SEGMENT)
        return oriel_arena_lookup(comm);
    if (id & DEVICE_SEGMENT)
        return oriel_devices_lookup(comm, id, &of_device);
    return NULL;
}

static oriel_comm *comm_new(const oriel_comm_params *params)
{
    oriel_comm *comm = oriel_sys_now->alloc(sizeof *comm);

    if (comm == NULL)
        return NULL;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_mutex_init(&comm->arena_lock, NULL);
    comm->find_segment = find_segment;
    comm->pid = (int)getpid();
    comm->process = params->process_id;
    comm->num_processes = params->num_processes;
    comm->on_gpus = params->devices != NULL;
    comm->cache = oriel_cache_bytes();
    comm->apart = oriel_cores_apart();
    comm->timeout = params->timeout_s;
    comm->warn_after = oriel_config_number(ORIEL_OPT_WARN_AFTER);
    comm->spin = oriel_config_number(ORIEL_OPT_SPIN) * 1e-6;
    return comm;
}

/* A peer that was struck may have said nothing of it. */
static void note_faults(const oriel_comm *comm, oriel_status st)
{
    if (comm->fabric != NULL && comm->fabric->injects &&
        strstr(oriel_last_error(), "ORIEL_FAULT") == NULL)
        oriel_fail_in(st, "ORIEL_FAULT is set");
}

/* Those who have the comm already, and meet there next. */
static void tell_members(oriel_comm *comm, oriel_status st)
{
    if (comm->size > 0 && comm->num_processes > 1)
        oriel_comm_abort(comm, st, comm->first_rank, comm->process, "process %d: %s", comm->process,
                         oriel_last_error());
}

/* There is no comm, but the others must not wait for it. */
static oriel_status refuse(const oriel_comm_params *params, oriel_status st)
{
    oriel_comm nobody = {.process = params->process_id, .num_processes = params->num_processes};

    return oriel_bootstrap(&nobody, params, st);
}

void oriel_comm_refuse(const oriel_comm_params *given, oriel_status status, const char *why)
{
    oriel_comm_params params;

    oriel_config_load();
    if (complete_params(given, &params) == ORIEL_OK && params.num_processes > 1)
        refuse(&params, oriel_fail(status, "%s", why));
}

oriel_status oriel_comm_create(const oriel_comm_params *given, oriel_comm **comm_p)
{
    oriel_comm_params params;
    oriel_comm *comm;
    oriel_status mine;
    oriel_status st;

    if (comm_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "comm_p is NULL");
    mine = oriel_config_load(); /* an option that is wrong has its default */
    st = complete_params(given, &params);
    if (st != ORIEL_OK)
        return st;
    oriel_log_set_process(params.num_processes > 1 ? params.process_id : -1);
    comm = comm_new(&params);
    if (comm == NULL)
        return refuse(&params, oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a comm"));

    st = oriel_bootstrap(comm, &params, mine);
    comm->injects = st == ORIEL_OK && comm->fabric->injects;
    if (st == ORIEL_OK)
        oriel_reads_probe(comm);
    if (st == ORIEL_OK)
        st = make_world(comm, &params);
    if (st != ORIEL_OK) {
        note_faults(comm, st);
        tell_members(comm, st);
        comm_free(comm);
        return st;
    }
    *comm_p = comm;
    return ORIEL_OK;
}

oriel_status oriel_comm_destroy(oriel_comm *comm)
{
    oriel_status st = ORIEL_OK;

    if (comm == NULL || comm->pid != (int)getpid())
        return ORIEL_OK;
    if (!oriel_comm_aborted(comm)) {
        atomic_store(&comm->heap.procs[comm->process].leaving, LEAVING_FINALIZE);
        oriel_comm_ring_all(comm);
        st = oriel_comm_agree(comm, ORIEL_OK, comm->timeout);
    }
    if (st == ORIEL_OK)
        st = oriel_devices_part(comm);
    comm_free(comm);
    return st;
}

void oriel_comm_abandon(oriel_comm *comm)
{
    if (comm != NULL && comm->pid == (int)getpid())
        comm_free(comm);
}
