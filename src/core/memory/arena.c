#include "core/memory/arena.h"

#include "base/config.h"
#include "base/math.h"
#include "base/sys.h"

const heap_section oriel_memory_sections[] = {
    {"memory", SECTION_MEMORY, HEAP_OF_ALL, sizeof(heap_memory)}, {.bytes = 0}};

/* What 2^44 bytes hold is far more than a machine has, and far less than an address space. */
void oriel_arena_plan(const oriel_heap *heap)
{
    uint64_t most = (1ull << 44) / heap->header->num_ranks;
    uint64_t areas = oriel_least((uint64_t)oriel_config_number(ORIEL_OPT_ARENA), most / 2);
    uint64_t windows = oriel_least((uint64_t)oriel_config_number(ORIEL_OPT_WINDOWS), most - areas);

    oriel_memory(heap)->area_bytes = oriel_round_down(areas, HEAP_PAGE);
    oriel_memory(heap)->window_bytes = oriel_round_down(windows, HEAP_PAGE);
}

/* As the lead planned it: what this process's own options say may differ. */
static size_t area_bytes(const oriel_comm *comm)
{
    return (size_t)oriel_memory(&comm->heap)->area_bytes;
}

static size_t stride_of(const oriel_comm *comm)
{
    return area_bytes(comm) + (size_t)oriel_memory(&comm->heap)->window_bytes;
}

/* Called with the lock held. */
static oriel_status map(oriel_comm *comm, size_t bytes)
{
    arena_mapping *mapping = oriel_sys_now->alloc(sizeof *mapping);
    oriel_status st;

    if (mapping == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory");
    mapping->fabric = comm->fabric;
    atomic_init(&mapping->holders, 1);
    if (comm->process == (int)comm->heap.header->lead)
        st = comm->fabric->segment_create(bytes, &mapping->segment);
    else
        st = comm->fabric->segment_fetch(&comm->lead, ARENA_SEGMENT, bytes, comm->timeout,
                                         &mapping->segment);
    if (st != ORIEL_OK) {
        oriel_sys_now->release(mapping);
        return st;
    }
    comm->arena = mapping->segment;
    comm->arena_mapping = mapping;
    return ORIEL_OK;
}

oriel_status oriel_arena_open(oriel_comm *comm)
{
    size_t bytes = stride_of(comm) * (size_t)comm->size;
    oriel_status st = ORIEL_OK;

    pthread_mutex_lock(&comm->arena_lock);
    if (comm->arena.base == NULL)
        st = map(comm, bytes);
    if (st == ORIEL_OK && atomic_exchange(&comm->arena_is_open, 1) == 0)
        atomic_fetch_or(&oriel_memory(&comm->heap)->mapped[comm->process / 64],
                        1ull << comm->process % 64);
    pthread_mutex_unlock(&comm->arena_lock);
    if (st == ORIEL_OK)
        return st;
    return oriel_fail_in(st,
                         "the arena, %zu bytes of addresses, which are ORIEL_ARENA and "
                         "ORIEL_WINDOWS of each of %d ranks (lower those where ulimit -v or the "
                         "like allows a process fewer)",
                         bytes, comm->size);
}

int oriel_arena_is_shared(const oriel_group *group)
{
    const heap_memory *memory = oriel_memory(&group->comm->heap);

    for (int i = 0; i < group->num_procs; i++) {
        int p = group->procs[i];

        if (!(atomic_load_explicit(&memory->mapped[p / 64], memory_order_acquire) >> p % 64 & 1))
            return 0;
    }
    return 1;
}

const oriel_segment *oriel_arena_lookup(oriel_comm *comm)
{
    return oriel_arena_open(comm) == ORIEL_OK ? &comm->arena : NULL;
}

arena_mapping *oriel_arena_hold(oriel_comm *comm)
{
    atomic_fetch_add(&comm->arena_mapping->holders, 1);
    return comm->arena_mapping;
}

void oriel_arena_let_go(arena_mapping *mapping)
{
    if (mapping == NULL || atomic_fetch_sub(&mapping->holders, 1) != 1)
        return;
    mapping->fabric->segment_close(&mapping->segment);
    oriel_sys_now->release(mapping);
}

void oriel_arena_free(oriel_comm *comm)
{
    oriel_arena_let_go(comm->arena_mapping);
    oriel_sys_now->release(comm->areas);
    pthread_mutex_destroy(&comm->arena_lock);
}

char *oriel_arena_at(const oriel_comm *comm, int rank, size_t at)
{
    return (char *)comm->arena.base + (size_t)rank * stride_of(comm) + at;
}

int oriel_arena_find(const oriel_comm *comm, const void *addr, int *rank_p, size_t *at_p)
{
    uintptr_t at;

    if (atomic_load_explicit(&comm->arena_is_open, memory_order_acquire) == 0)
        return 0;
    at = (uintptr_t)addr - (uintptr_t)comm->arena.base;
    if (at >= comm->arena.bytes)
        return 0;
    *rank_p = (int)(at / stride_of(comm));
    *at_p = at % stride_of(comm);
    return 1;
}

/* Called with the lock held. */
static oriel_status insert(oriel_comm *comm, int rank, oriel_area *area)
{
    oriel_area **link;
    size_t at = 0;

    if (comm->areas == NULL)
        comm->areas = oriel_sys_now->alloc((size_t)comm->local_ranks * sizeof(oriel_area *));
    if (comm->areas == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for the areas of %d ranks",
                          comm->local_ranks);
    link = &comm->areas[rank - comm->first_rank];
    while (*link != NULL && (*link)->at - at < area->bytes) {
        at = (*link)->at + (*link)->bytes;
        link = &(*link)->next;
    }
    if (at + area->bytes > area_bytes(comm))
        return oriel_fail(ORIEL_ERR_NO_RESOURCE,
                          "kernels of rank %d need %zu bytes more than the %zu of ORIEL_ARENA",
                          rank, at + area->bytes - area_bytes(comm), area_bytes(comm));
    area->at = at;
    area->next = *link;
    *link = area;
    return ORIEL_OK;
}

oriel_status oriel_arena_take(oriel_comm *comm, int rank, size_t bytes, oriel_area *area)
{
    oriel_status st = oriel_arena_open(comm);

    if (st != ORIEL_OK)
        return st;
    *area = (oriel_area){.bytes = oriel_round_up(bytes, HEAP_LINE)};
    pthread_mutex_lock(&comm->arena_lock);
    st = insert(comm, rank, area);
    pthread_mutex_unlock(&comm->arena_lock);
    if (st != ORIEL_OK)
        area->bytes = 0;
    return st;
}

void oriel_arena_give(oriel_comm *comm, int rank, oriel_area *area)
{
    oriel_area **link;

    if (area->bytes == 0)
        return;
    pthread_mutex_lock(&comm->arena_lock);
    for (link = &comm->areas[rank - comm->first_rank]; *link != area; link = &(*link)->next) {
    }
    *link = area->next;
    pthread_mutex_unlock(&comm->arena_lock);
    area->bytes = 0;
}
