/* Buffers of GPUs that peers in other processes may touch. A call names the mapping its
 * buffer lies in; one not seen before is shown to the others by the registrar, a thread
 * of each process, and their registrars map it. When all have, the rank's device learns
 * so, and calls on such buffers go direct; until then, and where a mapping cannot be
 * shared, data passes through the stages. No call ever waits for this.
 *
 * A window belongs to a mapping, not to an address: the driver's buffer id tells whether
 * an address still means the same memory. A mapping that is gone is withdrawn, so that the
 * memory behind it can be freed: an import keeps it alive.
 *
 *   FREE -> WANTED (a call) -> SHOWN -> READY (all have mapped it)
 *   any of them -> STALE (a call, or the registrar's round) -> WITHDRAWN -> FREE (all know)
 *
 * A generation counts the uses of a window's number, odd while it is shown, so that an
 * argument captured in a graph never means another buffer. The device trusts a window when
 * its word of `ready`, which the registrar writes, says the generation, and its word of
 * `stale`, which calls write on their stream, does not: so a call that finds an address to
 * mean other memory need not wait until the registrar has heard of it, nor race with it. */
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "core/device/fabric.h"
#include "core/device/register.h"

_Static_assert((int)HEAP_EXPORTS == (int)DEVICE_WINDOWS, "a window has a place in the heap");

#define ROUND_S 0.05 /* the registrar sleeps no longer: lost wake-ups cost as much */
#define SWEEP_S 1.0  /* how often it looks for mappings that are gone */

/* ---- the calling thread ---------------------------------------------------------------- */

static uint64_t buffer_id(cu_ptr at)
{
    uint64_t id = 0;

    return oriel_cu->pointer_attribute(&id, CU_POINTER_BUFFER_ID, at) == CU_OK ? id : 0;
}

static int is_known(uint32_t state)
{
    return state == WANTED || state == SHOWN || state == READY || state == NEVER;
}

static cu_ptr ready_word(const oriel_device_rank *rank, int number)
{
    return rank->heap.base + offsetof(device_table, ready) + 4 * (cu_ptr)number;
}

static cu_ptr stale_word(const oriel_device_rank *rank, int number)
{
    return rank->heap.base + offsetof(device_table, stale) + 4 * (cu_ptr)number;
}

static void make_stale(const oriel_device_rank *rank, int number, uint32_t state, cu_stream stream)
{
    oriel_export *e = &rank->exports[number];

    atomic_compare_exchange_strong(&e->state, &state, STALE);
    oriel_cu->fill_words(stale_word(rank, number), e->generation, 1, stream);
}

/* The entry that `at` lies in and that still means the same memory, shown to the same ranks as the
 * call at hand shows it; -1: none. Others that it lies in are stale, also for what comes next on
 * this stream. */
static int find_export(oriel_device_rank *rank, cu_ptr at, uint64_t id, cu_stream stream,
                       int *stale_p)
{
    int found = -1;

    for (int i = 0; i < rank->num_exports; i++) {
        oriel_export *e = &rank->exports[i];
        uint32_t state = atomic_load(&e->state);

        if ((!is_known(state) && state != STALE) || at < e->base || at - e->base >= e->bytes)
            continue;
        if (e->id == id && state != STALE) {
            found = e->group == rank->shown_to ? i : found;
            continue;
        }
        make_stale(rank, i, state, stream);
        *stale_p = 1;
    }
    return found;
}

/* Where generations begin in the next world: a graph that was captured in this one must not take
 * a window of that for its own. */
static _Atomic uint32_t first_generation;

static int add_export(oriel_comm *comm, oriel_device_rank *rank, cu_ptr at, uint64_t id)
{
    cu_ptr base = 0;
    size_t bytes = 0;
    oriel_export *e;
    int i = 0;

    if (id == 0 || oriel_cu->mem_range(&base, &bytes, at) != CU_OK)
        return -1;
    while (i < DEVICE_WINDOWS && atomic_load(&rank->exports[i].state) != FREE)
        i++;
    if (i == DEVICE_WINDOWS)
        return -1;
    e = &rank->exports[i];
    e->id = id;
    e->base = base;
    e->bytes = bytes;
    e->fd = -1;
    e->alias = (oriel_cuda_memory){.fd = -1};
    e->group = rank->shown_to;
    e->others = (uint32_t)comm->here - 1;
    e->generation = e->generation / 2 * 2 + 1 + (e->generation != 0 ? 2 : 0);
    atomic_store(&e->state, WANTED);
    if (i >= rank->num_exports)
        rank->num_exports = i + 1;
    oriel_comm_ring(comm, comm->process);
    return i;
}

oriel_place oriel_register(oriel_comm *comm, int rank, const void *at, size_t bytes,
                           cu_stream stream)
{
    oriel_device_rank *r = oriel_device_of(comm, rank);
    cu_ptr address = (cu_ptr)(uintptr_t)at;
    int stale = 0;
    uint64_t id;
    int i;

    if (r->exports == NULL || bytes == 0)
        return (oriel_place){0};
    id = buffer_id(address);
    i = find_export(r, address, id, stream, &stale);
    if (i < 0)
        i = add_export(comm, r, address, id);
    if (i < 0 || atomic_load(&r->exports[i].state) == NEVER ||
        address - r->exports[i].base + bytes > r->exports[i].bytes)
        return (oriel_place){.stale = stale};
    return (oriel_place){.window = (uint64_t)(i + 1) << DEVICE_WINDOW_SHIFT |
                                   (address - r->exports[i].base),
                         .generation = r->exports[i].generation,
                         .stale = stale};
}

/* ---- the registrar: own buffers ------------------------------------------------------------ */

int oriel_export_fd(const oriel_device_rank *rank, uint64_t window)
{
    const oriel_export *e = &rank->exports[window - 1];
    uint32_t state;

    if (rank->exports == NULL || window > DEVICE_WINDOWS)
        return -1;
    state = atomic_load(&e->state);
    return state == SHOWN || state == READY ? e->fd : -1;
}

static void set_ready(const oriel_device_rank *rank, int number, uint32_t generation)
{
    if (oriel_cuda_write(rank->gpu, ready_word(rank, number), &generation, sizeof generation) !=
        ORIEL_OK)
        oriel_log(ORIEL_LOG_WARN, "%s", oriel_last_error());
}

static void show(oriel_comm *comm, const oriel_device_rank *r, oriel_export *e, int rank,
                 int number)
{
    heap_export *shown = shown_of(comm, rank, number);
    _Atomic uint32_t *most = &oriel_exports(&comm->heap, rank)->used;

    if (comm->devices->fabric->buffer_export(r, e) != ORIEL_OK) {
        atomic_store(&e->state, NEVER);
        oriel_log(ORIEL_LOG_INFO,
                  "rank %d: memory at %llx cannot be shared with other processes; it is staged",
                  rank, (unsigned long long)e->base);
        return;
    }
    shown->bytes = e->bytes;
    atomic_store(&shown->mapped, 0);
    atomic_store(&shown->released, 0);
    if (atomic_load(most) <= (uint32_t)number)
        atomic_store(most, (uint32_t)number + 1);
    atomic_store(&e->state, SHOWN);
    atomic_store(&shown->generation, e->generation);
    oriel_comm_ring_all(comm);
}

static void withdraw(oriel_comm *comm, const oriel_device_rank *r, oriel_export *e, int rank,
                     int number)
{
    heap_export *shown = shown_of(comm, rank, number);

    set_ready(r, number, 0);
    if (atomic_load(&shown->generation) != e->generation) { /* to no registrar */
        atomic_store(&e->state, FREE);
        return;
    }
    atomic_store(&e->state, WITHDRAWN);
    atomic_store(&shown->generation, e->generation + 1);
    oriel_comm_ring_all(comm);
}

/* What a round has registered is the round's. */
static void release_mapping(oriel_export *e)
{
    if (e->fd >= 0)
        oriel_sys_now->close(e->fd);
    e->fd = -1;
    if (!e->registered)
        oriel_cuda_memory_close(&e->alias);
    e->alias = (oriel_cuda_memory){.fd = -1};
    e->registered = 0;
}

/* Whether something moved. */
static int step_export(oriel_comm *comm, const oriel_device_rank *r, oriel_export *e, int rank,
                       int number)
{
    heap_export *shown = shown_of(comm, rank, number);
    uint32_t state = atomic_load(&e->state);

    switch (state) {
    case WANTED:
        if (e->group != 0)
            return 0;
        show(comm, r, e, rank, number);
        return 1;
    case SHOWN:
        if (atomic_load(&shown->mapped) < e->others)
            return 0;
        set_ready(r, number, e->generation);
        atomic_compare_exchange_strong(&e->state, &state, READY);
        return 1;
    case STALE:
        if (e->offered)
            return 0;
        withdraw(comm, r, e, rank, number);
        return 1;
    case WITHDRAWN:
        if (atomic_load(&shown->released) < e->others)
            return 0;
        release_mapping(e);
        atomic_store(&e->state, FREE);
        return 1;
    default:
        return 0;
    }
}

static int step_exports(oriel_comm *comm, int sweep)
{
    oriel_devices *devices = comm->devices;
    int moved = 0;

    for (int k = 0; k < devices->num_ranks; k++) {
        oriel_device_rank *r = &devices->ranks[k];

        oriel_cuda_enter(r->gpu);
        for (int i = 0; i < DEVICE_WINDOWS && i < r->num_exports; i++) {
            oriel_export *e = &r->exports[i];
            uint32_t state = atomic_load(&e->state);

            if (sweep && is_known(state) && buffer_id(e->base) != e->id)
                atomic_compare_exchange_strong(&e->state, &state, STALE);
            moved |= step_export(comm, r, e, comm->first_rank + k, i);
        }
        oriel_cuda_leave();
    }
    return moved;
}

/* ---- the registrar: buffers of others ---------------------------------------------------- */

oriel_status oriel_window_tell(const oriel_device_rank *r, int rank, int number, cu_ptr base)
{
    cu_ptr at = r->heap.base + offsetof(device_table, window) +
                8 * ((cu_ptr)rank * DEVICE_WINDOWS + (cu_ptr)number);

    return oriel_cuda_write(r->gpu, at, &base, sizeof base);
}

oriel_status oriel_windows_tell(const oriel_devices *devices, int rank, int number, cu_ptr base)
{
    oriel_status st = ORIEL_OK;

    for (int k = 0; k < devices->num_ranks && st == ORIEL_OK; k++)
        st = oriel_window_tell(&devices->ranks[k], rank, number, base);
    return st;
}

static int step_import(oriel_comm *comm, int rank, int number)
{
    const oriel_devices *devices = comm->devices;
    oriel_import *import = &devices->imports[rank][number];
    heap_export *shown = shown_of(comm, rank, number);
    uint32_t generation = atomic_load(&shown->generation);

    if (import->generation == generation)
        return 0;
    if (generation % 2 != 0)
        return devices->fabric->buffer_import(comm, rank, number, generation);
    import->generation = generation;
    oriel_windows_tell(devices, rank, number, 0);
    oriel_cuda_memory_close(&import->memory);
    atomic_fetch_add(&shown->released, 1);
    oriel_comm_ring(comm, comm->heap.ranks[rank].process);
    return 1;
}

static int step_imports(oriel_comm *comm)
{
    int moved = 0;

    for (int r = 0; r < comm->size; r++) {
        uint32_t n = atomic_load(&oriel_exports(&comm->heap, r)->used);

        for (uint32_t i = 0; i < n && i < DEVICE_WINDOWS && comm->devices->imports[r] != NULL; i++)
            moved |= step_import(comm, r, (int)i);
    }
    return moved;
}

/* ---- groups whose members map for themselves ----------------------------------------------- */

uint32_t oriel_register_ready(const oriel_device_rank *rank)
{
    uint32_t ready = 0;

    for (int i = 0; rank->exports != NULL && i < rank->num_exports; i++)
        ready += rank->exports[i].group != 0 && atomic_load(&rank->exports[i].state) == READY;
    return ready;
}

uint32_t oriel_register_wanted(const oriel_device_rank *rank, uint64_t group)
{
    uint32_t wanted = 0;

    for (int i = 0; i < rank->num_exports; i++)
        wanted += rank->exports[i].group == group && atomic_load(&rank->exports[i].state) == WANTED;
    return wanted;
}

/* Alone this thread makes exports of them, so none is taken for something else meanwhile. */
int oriel_register_bring(oriel_comm *comm, int rank, uint64_t group, uint32_t others, int most,
                         oriel_brought *brought)
{
    const oriel_device_rank *r = oriel_device_of(comm, rank);
    int n = 0;

    for (int i = 0; i < r->num_exports && n < most; i++) {
        oriel_export *e = &r->exports[i];
        oriel_brought *b = &brought[n];

        if (e->group != group || atomic_load(&e->state) != WANTED)
            continue;
        if (oriel_cuda_memory_alias(r->gpu, e->base, e->bytes, &b->alias) != ORIEL_OK)
            continue;
        if (buffer_id(e->base) != e->id) {
            oriel_cuda_memory_close(&b->alias);
            continue;
        }
        e->others = others;
        atomic_store(&shown_of(comm, rank, i)->mapped, 0);
        b->number = i;
        b->generation = e->generation;
        n++;
    }
    return n;
}

void oriel_register_brought(oriel_device_rank *rank, int number, int can)
{
    uint32_t wanted = WANTED;

    atomic_compare_exchange_strong(&rank->exports[number].state, &wanted, can ? SHOWN : NEVER);
}

oriel_status oriel_register_reach(oriel_comm *comm, int rank, int of, int number, cu_ptr at)
{
    oriel_status st = oriel_window_tell(oriel_device_of(comm, rank), of, number, at);

    if (st != ORIEL_OK)
        return st;
    atomic_fetch_add(&shown_of(comm, of, number)->mapped, 1);
    oriel_comm_ring(comm, comm->heap.ranks[of].process);
    return ORIEL_OK;
}

int oriel_register_holds(const oriel_device_rank *rank, int number, uint32_t generation)
{
    const oriel_export *e = &rank->exports[number];

    return e->generation == generation && atomic_load(&e->state) != FREE;
}

void oriel_unregister(oriel_device_rank *rank, uint64_t group, cu_stream stream)
{
    for (int i = 0; rank->exports != NULL && i < rank->num_exports; i++) {
        uint32_t state = atomic_load(&rank->exports[i].state);

        if (rank->exports[i].group == group && is_known(state))
            make_stale(rank, i, state, stream);
    }
}

/* ---- the registrar: its life ---------------------------------------------------------------- */

static void *registrar_main(void *arg)
{
    oriel_comm *comm = arg;
    oriel_devices *devices = comm->devices;
    oriel_waiter waiter = {0};
    double sweep_at = oriel_now() + SWEEP_S;

    while (!atomic_load(&devices->registrar_ends) || !devices->fabric->rounds_may_end(comm)) {
        int sweep = oriel_now() > sweep_at;
        int moved;

        if (sweep)
            sweep_at = oriel_now() + SWEEP_S;
        moved = step_exports(comm, sweep);
        moved |= step_imports(comm);
        moved |= devices->fabric->rounds_step(comm);
        if (!moved)
            oriel_waiter_sleep(comm, &waiter, ROUND_S);
    }
    oriel_waiter_end(comm, &waiter);
    return NULL;
}

/* A rank of another process of this machine. */
static int is_neighbour(const oriel_comm *comm, int rank)
{
    int process = comm->heap.ranks[rank].process;

    return process != comm->process && oriel_comm_is_here(comm, process);
}

oriel_status oriel_registrar_start(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    int complete = 1;

    if (comm->here == 1 || !comm->heap.header->direct)
        return ORIEL_OK;
    devices->imports = oriel_sys_now->alloc((size_t)comm->size * sizeof *devices->imports);
    for (int r = 0; devices->imports != NULL && r < comm->size; r++) {
        if (is_neighbour(comm, r))
            devices->imports[r] = oriel_sys_now->alloc(DEVICE_WINDOWS * sizeof(oriel_import));
        complete &= !is_neighbour(comm, r) || devices->imports[r] != NULL;
    }
    for (int k = 0; k < devices->num_ranks; k++) {
        devices->ranks[k].exports = oriel_sys_now->alloc(DEVICE_WINDOWS * sizeof(oriel_export));
        complete &= devices->ranks[k].exports != NULL;
        for (int i = 0; devices->ranks[k].exports != NULL && i < DEVICE_WINDOWS; i++)
            devices->ranks[k].exports[i].generation = atomic_load(&first_generation);
    }
    if (!complete || devices->imports == NULL || devices->fabric->rounds_open(comm) != ORIEL_OK ||
        oriel_sys_now->thread(&devices->registrar, registrar_main, comm) != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "no thread, or no memory, to map buffers of others");
    devices->registering = 1;
    return ORIEL_OK;
}

static void close_exports(oriel_device_rank *r)
{
    for (int i = 0; r->exports != NULL && i < r->num_exports; i++) {
        oriel_export *e = &r->exports[i];

        if (atomic_load(&e->state) != FREE)
            release_mapping(e);
        if (e->generation >= atomic_load(&first_generation))
            atomic_store(&first_generation, e->generation / 2 * 2 + 2);
    }
    oriel_sys_now->release(r->exports);
}

void oriel_registrar_stop(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;

    atomic_store(&devices->registrar_ends, 1);
    if (devices->registering) {
        oriel_comm_ring(comm, comm->process);
        pthread_join(devices->registrar, NULL);
        devices->registering = 0;
    }
}

void oriel_registrar_free(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;

    for (int k = 0; devices->ranks != NULL && k < devices->num_ranks; k++)
        close_exports(&devices->ranks[k]);
    for (int r = 0; devices->imports != NULL && r < comm->size; r++) {
        for (int i = 0; devices->imports[r] != NULL && i < DEVICE_WINDOWS; i++)
            oriel_cuda_memory_close(&devices->imports[r][i].memory);
        oriel_sys_now->release(devices->imports[r]);
    }
    oriel_sys_now->release(devices->imports);
}
