/* processes: 3 */
/* Rounds of registration between processes, without a GPU: the driver and NCCL are this file's.
 * Its NCCL keeps who comes to a collective call until all have come, and sees whether they all
 * do the same in the same order; a thread of each process makes calls of NCCL's own beside the
 * rounds. In each turn some ranks have new memory where others go on with what all have mapped. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "core/device/register.h"
#include "core/nccl/comm.h"
#include "support/check.h"
#include "support/process.h"
#include "support/values.h"

enum { MOST = 8, BUFFERS = 2, TURNS = 60, CALLS = 300, LOG = 1 << 14 };
enum what { NOTHING, REGISTER, DEREGISTER, CALL };

/* Seen by all processes. */
struct shared {
    _Atomic uint32_t entered[MOST];         /* how many calls of NCCL each rank has begun ... */
    _Atomic uint8_t what[LOG][MOST];        /* ... and which */
    _Atomic uint64_t place[MOST][BUFFERS];  /* where all see the buffers, and their windows' ... */
    _Atomic uint32_t number[MOST][BUFFERS]; /* ... numbers */
};
static struct shared *shared;
static int rank, size;

/* ---- the driver ------------------------------------------------------------------------------ */

struct mapping {
    cu_ptr base;
    uint64_t id;
};
static const size_t mapping_bytes = 4 << 20;
static struct mapping mappings[BUFFERS];
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t next_id = 1;
static _Atomic uint64_t next_address = 1ull << 40;

static cu_result find(cu_ptr at, struct mapping *found)
{
    cu_result result = 1;

    pthread_mutex_lock(&mappings_lock);
    for (int i = 0; i < BUFFERS; i++) {
        if (at >= mappings[i].base && at - mappings[i].base < mapping_bytes) {
            *found = mappings[i];
            result = CU_OK;
        }
    }
    pthread_mutex_unlock(&mappings_lock);
    return result;
}

static cu_result pointer_attribute(void *value, int attribute, cu_ptr at)
{
    struct mapping found = {0};
    cu_result result = find(at, &found);

    (void)attribute;
    memcpy(value, &found.id, sizeof found.id);
    return result;
}

static cu_result mem_range(cu_ptr *base, size_t *bytes, cu_ptr at)
{
    struct mapping found = {0};
    cu_result result = find(at, &found);

    *base = found.base;
    *bytes = mapping_bytes;
    return result;
}

static cu_result mem_reserve(cu_ptr *at, size_t bytes, size_t alignment, cu_ptr wish,
                             unsigned long long flags)
{
    (void)alignment;
    (void)wish;
    (void)flags;
    *at = atomic_fetch_add(&next_address, bytes);
    return CU_OK;
}

static cu_result mem_export(void *shareable, cu_handle handle, int type, unsigned long long flags)
{
    const int none = -1;

    (void)handle;
    (void)type;
    (void)flags;
    memcpy(shareable, &none, sizeof none);
    return CU_OK;
}

/* Device memory is the host's; words of it are written alone. */
static cu_result copy_in(cu_ptr to, const void *from, size_t bytes, cu_stream stream)
{
    void *at = (void *)(uintptr_t)to;

    (void)stream;
    CHECK(bytes == 4 || bytes == 8, "%zu bytes", bytes);
    if (bytes == 4)
        __atomic_store_n((uint32_t *)at, *(const uint32_t *)from, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint64_t *)at, *(const uint64_t *)from, __ATOMIC_RELEASE);
    return CU_OK;
}

static cu_result fill_words(cu_ptr at, unsigned value, size_t count, cu_stream stream)
{
    for (size_t i = 0; i < count; i++)
        copy_in(at + 4 * i, &value, sizeof value, stream);
    return CU_OK;
}

static cu_result context_push(cu_context context)
{
    (void)context;
    return CU_OK;
}

static cu_result context_pop(cu_context *context)
{
    (void)context;
    return CU_OK;
}

static cu_result mem_retain(cu_handle *handle, void *at)
{
    (void)handle;
    (void)at;
    return CU_OK;
}

static cu_result mem_release(cu_handle handle)
{
    (void)handle;
    return CU_OK;
}

static cu_result mem_map(cu_ptr at, size_t bytes, size_t offset, cu_handle handle,
                         unsigned long long flags)
{
    (void)at;
    (void)bytes;
    (void)offset;
    (void)handle;
    (void)flags;
    return CU_OK;
}

static cu_result mem_access(cu_ptr at, size_t bytes, const cu_access *access, size_t count)
{
    (void)at;
    (void)bytes;
    (void)access;
    (void)count;
    return CU_OK;
}

static cu_result mem_unmap(cu_ptr at, size_t bytes)
{
    (void)at;
    (void)bytes;
    return CU_OK;
}

static cu_result fill(cu_ptr at, unsigned char value, size_t bytes, cu_stream stream)
{
    (void)at;
    (void)value;
    (void)bytes;
    (void)stream;
    return CU_OK;
}

static cu_result stream_sync(cu_stream stream)
{
    (void)stream;
    return CU_OK;
}

static const cu_driver driver = {.pointer_attribute = pointer_attribute,
                                 .mem_range = mem_range,
                                 .mem_retain = mem_retain,
                                 .mem_release = mem_release,
                                 .mem_export = mem_export,
                                 .mem_reserve = mem_reserve,
                                 .mem_unreserve = mem_unmap,
                                 .mem_map = mem_map,
                                 .mem_unmap = mem_unmap,
                                 .mem_access = mem_access,
                                 .copy_in = copy_in,
                                 .fill = fill,
                                 .fill_words = fill_words,
                                 .stream_sync = stream_sync,
                                 .context_push = context_push,
                                 .context_pop = context_pop};

/* ---- NCCL ------------------------------------------------------------------------------------ */

static uint32_t begun;    /* calls of this rank ... */
static uint32_t compared; /* ... and those that all are known to have made alike */
static cu_ptr scratch;    /* what mem_alloc gave */
static size_t scratch_bytes;
static struct {
    cu_ptr at;
    uint32_t call; /* that registered it */
} registered[LOG];
static _Atomic int num_registered;

static void begin(enum what what)
{
    CHECK(begun < LOG, "%u calls", begun);
    atomic_store(&shared->what[begun][rank], (uint8_t)what);
    atomic_store(&shared->entered[rank], ++begun);
}

static nccl_result comm_state(nccl_comm comm, nccl_result *state)
{
    (void)comm;
    *state = NCCL_IN_PROGRESS;
    for (int r = 0; r < size; r++) {
        if (atomic_load(&shared->entered[r]) < begun)
            return NCCL_SUCCESS;
    }
    for (; compared < begun; compared++) {
        for (int r = 0; r < size; r++)
            CHECK(shared->what[compared][r] == shared->what[compared][rank],
                  "call %u is %d on rank %d and %d on rank %d", compared, shared->what[compared][r],
                  r, shared->what[compared][rank], rank);
    }
    *state = NCCL_SUCCESS;
    return NCCL_SUCCESS;
}

static nccl_result window_register(nccl_comm comm, void *at, size_t bytes, nccl_window *window,
                                   int flags)
{
    (void)comm;
    (void)bytes;
    (void)flags;
    begin(REGISTER);
    registered[num_registered].at = (cu_ptr)(uintptr_t)at;
    registered[num_registered].call = begun;
    num_registered++;
    *window = (nccl_window)(uintptr_t)begun;
    return NCCL_IN_PROGRESS;
}

static nccl_result window_deregister(nccl_comm comm, nccl_window window)
{
    (void)comm;
    (void)window;
    begin(DEREGISTER);
    return NCCL_SUCCESS;
}

static uint64_t place_of(int whose, uint32_t call)
{
    return (uint64_t)(whose + 1) << 56 | (uint64_t)call << 24;
}

/* As the real one, which takes the own offset in an allocation for that of all. */
static nccl_result lsa_pointer(nccl_window window, size_t offset, int lsa_rank, void **at)
{
    uint32_t call = (uint32_t)(uintptr_t)window;
    cu_ptr inside = 0;

    for (int i = 0; i < num_registered; i++) {
        if (registered[i].call == call && registered[i].at - scratch < scratch_bytes)
            inside = registered[i].at - scratch;
    }
    *at = (void *)(uintptr_t)(place_of(lsa_rank, call) + inside + offset);
    return NCCL_SUCCESS;
}

static nccl_team team_lsa(nccl_comm comm)
{
    (void)comm;
    return (nccl_team){size, rank, 1};
}

static nccl_result mem_alloc(void **at, size_t bytes)
{
    scratch = atomic_fetch_add(&next_address, bytes);
    scratch_bytes = bytes;
    *at = (void *)(uintptr_t)scratch;
    return NCCL_SUCCESS;
}

static nccl_result mem_free(void *at)
{
    (void)at;
    return NCCL_SUCCESS;
}

static nccl_result group(void)
{
    return NCCL_SUCCESS;
}

static nccl_result comm_end(nccl_comm comm)
{
    (void)comm;
    return NCCL_SUCCESS;
}

static const nccl_library nccl_table = {.version = 23007,
                                        .comm_state = comm_state,
                                        .window_register = window_register,
                                        .window_deregister = window_deregister,
                                        .lsa_pointer = lsa_pointer,
                                        .team_lsa = team_lsa,
                                        .mem_alloc = mem_alloc,
                                        .mem_free = mem_free,
                                        .group_start = group,
                                        .group_end = group,
                                        .comm_finalize = comm_end,
                                        .comm_destroy = comm_end,
                                        .comm_abort = comm_end};

/* ---- a comm of GPUs that are none -------------------------------------------------------------
 */

static oriel_gpu gpu;

static oriel_devices *make_devices(oriel_comm *comm)
{
    oriel_devices *devices = oriel_sys_now->alloc(sizeof *devices);
    struct oriel_nccl *nccl = oriel_sys_now->alloc(sizeof *nccl);

    oriel_cu = &driver;
    devices->ranks = oriel_sys_now->alloc(sizeof *devices->ranks);
    devices->num_ranks = 1;
    devices->ranks[0].gpu = &gpu;
    devices->ranks[0].heap.base = (cu_ptr)(uintptr_t)calloc(1, sizeof(device_table));
    pthread_mutex_init(&devices->look_lock, NULL);
    nccl->heaps = oriel_sys_now->alloc(sizeof *nccl->heaps);
    nccl->links.nccl = &nccl_table;
    nccl->links.links = oriel_sys_now->alloc(sizeof *nccl->links.links);
    nccl->links.links[0].gpu = &gpu;
    nccl->links.links[0].comm = (nccl_comm)(void *)nccl;
    pthread_mutex_init(&nccl->links.links[0].lock, NULL);
    nccl->links.n = 1;
    nccl->links.first = rank;
    nccl->links.size = size;
    devices->nccl = nccl;
    devices->fabric = &oriel_device_nccl;
    comm->devices = devices;
    return devices;
}

static void map_anew(int i)
{
    pthread_mutex_lock(&mappings_lock);
    mappings[i] =
        (struct mapping){.base = (2ull + (unsigned)i) << 32, .id = atomic_fetch_add(&next_id, 1)};
    pthread_mutex_unlock(&mappings_lock);
}

static void *call_nccl(void *arg)
{
    oriel_comm *comm = arg;

    for (int i = 0; i < CALLS; i++) {
        nccl_comm own;

        CHECK_OK(oriel_nccl_enter(comm, rank, &own));
        begin(CALL);
        CHECK_OK(oriel_nccl_leave(comm, rank, NCCL_IN_PROGRESS, "a call"));
        oriel_sys_now->poll(NULL, 0, (int)(values_mix((uint64_t)i, (uint64_t)rank) % 3));
    }
    return NULL;
}

/* ---- turns --------------------------------------------------------------------------------------
 */

/* The buffer's place in the rank's windows, once all have mapped it. */
static int await_ready(oriel_comm *comm, oriel_devices *devices, int i)
{
    double until = oriel_now() + 20.0;

    for (;;) {
        oriel_place place =
            oriel_register(comm, rank, (void *)(uintptr_t)mappings[i].base, 4096, NULL);
        int number = (int)(place.window >> DEVICE_WINDOW_SHIFT) - 1;

        if (number >= 0 && atomic_load(&devices->ranks[0].exports[number].state) == READY)
            return number;
        CHECK(oriel_now() < until, "rank %d: a buffer was not registered", rank);
        oriel_sys_now->poll(NULL, 0, 1);
    }
}

static void show_place(const oriel_devices *devices, int i, int number)
{
    const oriel_export *e = &devices->ranks[0].exports[number];

    for (int k = num_registered - 1; k >= 0; k--) {
        if (registered[k].at == e->alias.base) {
            atomic_store(&shared->place[rank][i], place_of(rank, registered[k].call));
            atomic_store(&shared->number[rank][i], (uint32_t)number);
            return;
        }
    }
    CHECK(0, "rank %d: buffer %d was never registered", rank, i);
}

static void turn(oriel_comm *comm, oriel_devices *devices, int t)
{
    const device_table *table = (const void *)(uintptr_t)devices->ranks[0].heap.base;

    for (int i = 0; i < BUFFERS; i++) {
        if (t == 0 || values_mix((uint64_t)t, (uint64_t)(rank * BUFFERS + i)) % 3 == 0)
            map_anew(i);
    }
    for (int i = 0; i < BUFFERS; i++)
        show_place(devices, i, await_ready(comm, devices, i));
    CHECK_OK(oriel_comm_barrier(comm));
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < BUFFERS && r != rank; i++) {
            uint64_t seen =
                __atomic_load_n(&table->window[r][shared->number[r][i]], __ATOMIC_ACQUIRE);

            CHECK(seen == shared->place[r][i],
                  "turn %d: rank %d sees buffer %d of rank %d at %llx, not %llx", t, rank, i, r,
                  (unsigned long long)seen, (unsigned long long)shared->place[r][i]);
        }
    }
    CHECK_OK(oriel_comm_barrier(comm));
}

int main(void)
{
    oriel_comm *comm = process_comm(1, 60.0, "rounds");
    oriel_window *window;
    oriel_devices *devices;
    pthread_t user;
    void *at = NULL;

    rank = oriel_comm_first_rank(comm);
    size = oriel_comm_size(comm);
    CHECK_OK(oriel_window_create(oriel_comm_world(comm), sizeof *shared, &window));
    CHECK_OK(oriel_window_ptr(window, 0, &at));
    shared = at;
    devices = make_devices(comm);
    CHECK_OK(oriel_registrar_start(comm));
    CHECK(pthread_create(&user, NULL, call_nccl, comm) == 0, "no thread");
    for (int t = 0; t < TURNS; t++)
        turn(comm, devices, t);
    pthread_join(user, NULL);
    oriel_registrar_stop(comm);
    CHECK(num_registered > TURNS / 2, "%d registrations", num_registered);
    CHECK(begun > (uint32_t)(CALLS + num_registered), "nothing was deregistered");
    free((void *)(uintptr_t)devices->ranks[0].heap.base);
    devices->ranks[0].heap.base = 0;
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}
