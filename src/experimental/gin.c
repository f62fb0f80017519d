#include "experimental/gin.h"

#include "base/config.h"
#include "base/log.h"
#include "oriel/experimental/gin_types.h"

_Static_assert((int)ORIEL_GIN_RANKS >= (int)DEVICE_RANKS, "a place for each rank");
_Static_assert(sizeof(oriel_gin) <= 64 << 10, "it has room behind the frames");

static struct oriel_nccl *nccl_of(const oriel_comm *comm)
{
    return ((const oriel_devices *)comm->devices)->nccl;
}

static oriel_gin_links *gin_of(const oriel_comm *comm)
{
    return &oriel_experimental_of(comm)->gin;
}

/* At addresses of their own, so that NCCL's send and receive do not find their buffers in a
 * window: where they did, blocks between ranks that share a GPU were seen to come out wrong. */
static oriel_status map_again(const oriel_comm *comm)
{
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < comm->local_ranks && st == ORIEL_OK; i++) {
        const oriel_device_rank *rank = &comm->devices->ranks[i];

        st = oriel_cuda_memory_alias(rank->gpu, rank->heap.base, rank->heap.bytes,
                                     &nccl_of(comm)->kept[i]);
    }
    return st;
}

static oriel_status register_heaps(oriel_comm *comm)
{
    struct oriel_nccl *nccl = nccl_of(comm);
    oriel_nccl_wait wait = oriel_nccl_patience(comm, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    cu_ptr at[DEVICE_RANKS];
    size_t bytes[DEVICE_RANKS];

    for (int i = 0; i < comm->local_ranks; i++) {
        at[i] = nccl->kept[i].base;
        bytes[i] = nccl->kept[i].bytes;
    }
    return oriel_nccl_links_register(&nccl->links, at, bytes, NCCL_WINDOW_ORDERED, &wait,
                                     gin_of(comm)->windows);
}

/* Into the rank's arena, where its kernels look. */
static oriel_status describe(const oriel_comm *comm, int i)
{
    const oriel_devices *devices = comm->devices;
    const oriel_device_rank *rank = &devices->ranks[i];
    nccl_gin_proxy proxy;
    nccl_gin_window window;
    oriel_gin gin = {.self = (uint32_t)(comm->first_rank + i)};
    oriel_status st = oriel_nccl_gin_read(&nccl_of(comm)->links, i, &gin_of(comm)->made[i],
                                          gin_of(comm)->windows[i], &proxy, &window);

    if (st != ORIEL_OK)
        return st;
    gin.queues = (uint64_t(*)[16])(uintptr_t)proxy.queues;
    gin.posted = (uint32_t *)(uintptr_t)proxy.posted;
    gin.done = (const uint32_t *)(uintptr_t)proxy.taken;
    gin.signals = (const uint64_t *)(uintptr_t)proxy.signals;
    gin.queue_size = proxy.queue_size;
    gin.window = window.handles[0];
    gin.window_at = (uint64_t)window.at * NCCL_WINDOW_ALIGNMENT + devices->arena_at;
    return oriel_cuda_write(rank->gpu, rank->heap.base + devices->arena_at + ORIEL_GIN_AT, &gin,
                            sizeof gin);
}

/* All that a rank may find out by itself. */
static oriel_status prepare(const oriel_comm *comm)
{
    oriel_status st;

    if (oriel_config_number(ORIEL_OPT_GIN) <= 0)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "ORIEL_GIN is 0: set it to 1 on all");
    st = oriel_nccl_gin_check(&nccl_of(comm)->links);
    return st == ORIEL_OK ? map_again(comm) : st;
}

static oriel_status open_all(oriel_comm *comm)
{
    oriel_nccl_wait wait = oriel_nccl_patience(comm, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    oriel_status st =
        oriel_nccl_gin_open(&nccl_of(comm)->links, ORIEL_GIN_SIGNALS, &wait, gin_of(comm)->made);

    if (st == ORIEL_OK)
        st = register_heaps(comm);
    for (int i = 0; i < comm->local_ranks && st == ORIEL_OK; i++)
        st = describe(comm, i);
    return st;
}

oriel_status oriel_gin_open(oriel_comm *comm)
{
    oriel_gin_links *gin = gin_of(comm);
    oriel_status st = oriel_nccl_note(comm, prepare(comm), gin->why, sizeof gin->why);

    if (st == ORIEL_OK && gin->why[0] == '\0')
        st = oriel_nccl_note(comm, open_all(comm), gin->why, sizeof gin->why);
    if (st == ORIEL_OK && gin->why[0] != '\0' && oriel_config_number(ORIEL_OPT_GIN) > 0)
        oriel_log(ORIEL_LOG_WARN, "no kernels of one's own between machines: %s", gin->why);
    return st;
}

void oriel_gin_close(oriel_comm *comm)
{
    oriel_nccl_links_deregister(&nccl_of(comm)->links, gin_of(comm)->windows);
    oriel_nccl_device_destroy(&nccl_of(comm)->links, gin_of(comm)->made);
}

const char *oriel_gin_missing(const oriel_comm *comm)
{
    if (comm->devices == NULL || nccl_of(comm) == NULL)
        return "the comm has no NCCL communicator";
    return gin_of(comm)->why[0] != '\0' ? gin_of(comm)->why : NULL;
}
