#include "core/nccl/via.h"

#include <stdio.h>

#include "base/config.h"
#include "base/log.h"
#include "base/sys.h"

/* Sizes that NCCL moves in different ways: what a way needs is connected when it is first gone,
 * which waits for all ranks and so belongs here. */
static const size_t first_counts[] = {1, 64 << 10, 1 << 20};

/* ---- calls that the host launches ---------------------------------------------------------- */

static oriel_status make_stream(const oriel_gpu *gpu, oriel_nccl_way *way)
{
    cu_context back;
    oriel_status st;

    oriel_cu->context_push(gpu->context);
    st = oriel_cuda_check(oriel_cu->stream_create(&way->stream, CU_STREAM_NON_BLOCKING_FLAG, -5),
                          "creating a stream");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->event_create(&way->fork, CU_EVENT_NO_TIMING),
                              "creating an event");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->event_create(&way->join, CU_EVENT_NO_TIMING),
                              "creating an event");
    oriel_cu->context_pop(&back);
    return st;
}

/* On all local ranks at once, as NCCL wants it of one thread. */
static nccl_result start_calls(struct oriel_nccl *nccl, const cu_ptr *at, size_t count)
{
    const nccl_library *calls = nccl->links.nccl;
    nccl_result result = calls->group_start();
    nccl_result ended;

    for (int i = 0; i < nccl->links.n && result == NCCL_SUCCESS; i++) {
        result = calls->all_reduce((const void *)(uintptr_t)at[i], (void *)(uintptr_t)at[i], count,
                                   NCCL_FLOAT32, NCCL_SUM, nccl->links.links[i].comm,
                                   nccl->ways->of[i].stream);
        if (result == NCCL_IN_PROGRESS)
            result = NCCL_SUCCESS;
    }
    ended = calls->group_end();
    return result != NCCL_SUCCESS ? result : ended;
}

/* What was started has ended on the GPUs as well. */
static oriel_status drain_streams(struct oriel_nccl *nccl, const oriel_nccl_wait *wait)
{
    for (int i = 0; i < nccl->links.n; i++) {
        cu_context back;
        cu_result result;

        oriel_cu->context_push(nccl->links.links[i].gpu->context);
        while ((result = oriel_cu->stream_query(nccl->ways->of[i].stream)) == CU_NOT_READY &&
               oriel_now() < wait->until && !wait->stops(wait->of))
            oriel_sys_now->poll(NULL, 0, 1);
        oriel_cu->context_pop(&back);
        if (result == CU_NOT_READY)
            return oriel_fail(ORIEL_ERR_TIMEOUT, "NCCL's first all-reduce of rank %d did not end",
                              nccl->links.first + i);
        if (result != CU_OK)
            return oriel_cuda_check(result, "NCCL's first all-reduce");
    }
    return ORIEL_OK;
}

static oriel_status call_once(oriel_comm *comm, struct oriel_nccl *nccl, const cu_ptr *at,
                              size_t count)
{
    oriel_nccl_wait wait = oriel_nccl_patience(comm, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    nccl_result result = start_calls(nccl, at, count);
    oriel_status st;

    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        st = oriel_nccl_check(nccl->links.nccl, NULL, result, "the first all-reduce");
    else
        st = oriel_nccl_links_settle(&nccl->links, 0, nccl->links.n, "the first all-reduce", &wait);
    return st == ORIEL_OK ? drain_streams(nccl, &wait) : st;
}

/* Once in the heap's window, where nobody looks yet, and once in memory of no window. */
static oriel_status first_calls(oriel_comm *comm, struct oriel_nccl *nccl)
{
    const oriel_devices *devices = comm->devices;
    oriel_cuda_memory plain[DEVICE_RANKS] = {{0}};
    cu_ptr at[2][DEVICE_RANKS];
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < nccl->links.n && st == ORIEL_OK; i++) {
        st = oriel_cuda_memory_create(devices->ranks[i].gpu, sizeof(float) << 20, &plain[i]);
        at[0][i] = devices->ranks[i].heap.base + devices->stage_at;
        at[1][i] = plain[i].base;
    }
    for (size_t c = 0; c < 2 * sizeof first_counts / sizeof *first_counts && st == ORIEL_OK; c++) {
        size_t count = first_counts[c / 2];

        if (c % 2 == 1 || count * sizeof(float) <= devices->ranks[0].heap.bytes - devices->stage_at)
            st = call_once(comm, nccl, at[c % 2], count);
    }
    for (int i = 0; i < nccl->links.n; i++)
        oriel_cuda_memory_close(&plain[i]);
    return st;
}

static oriel_status open_calls(oriel_comm *comm, struct oriel_nccl *nccl)
{
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < nccl->links.n && st == ORIEL_OK; i++)
        st = make_stream(nccl->links.links[i].gpu, &nccl->ways->of[i]);
    return st == ORIEL_OK ? first_calls(comm, nccl) : st;
}

/* One that hangs must be ended without what it is mapped in going away. */
static oriel_status check_calls(const nccl_library *nccl)
{
    if (nccl->comm_revoke != NULL)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                      "%s has no ncclCommRevoke, so that a call could not be ended: 2.28.9 has it",
                      nccl->file);
}

/* ---- windows and barriers of kernels --------------------------------------------------------- */

static oriel_status check_lsa(const nccl_library *nccl)
{
    if (nccl->version >= NCCL_DEVICE_VERSION && nccl->dev_comm_create != NULL &&
        nccl->dev_comm_destroy != NULL)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                      "the barrier of NCCL's device API is used from 2.30 on; %s is %d.%d.%d",
                      nccl->file, nccl->version / 10000, nccl->version / 100 % 100,
                      nccl->version % 100);
}

/* What NCCL wrote is what this was made for. */
static oriel_status describe_lsa(const oriel_comm *comm, struct oriel_nccl *nccl, int i,
                                 int barriers)
{
    oriel_nccl_way *way = &nccl->ways->of[i];
    const nccl_device_comm *made = &nccl->ways->made[i];
    cu_ptr stride = (cu_ptr)made->resource_window.stride << 32;
    int rank = comm->first_rank + i;

    if (made->magic != NCCL_MAGIC || made->rank != rank || made->size != comm->size ||
        made->lsa_barriers != barriers)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "NCCL %d.%d.%d lays its device side out in another way than 2.30",
                          nccl->links.nccl->version / 10000, nccl->links.nccl->version / 100 % 100,
                          nccl->links.nccl->version % 100);
    if (made->lsa_size != comm->size || made->lsa_rank != rank)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "NCCL finds %d of %d ranks within reach",
                          made->lsa_size, comm->size);
    way->lsa = (device_via){.window = (uint64_t)(uintptr_t)nccl->heaps[i],
                            .barrier = made->resource_window.base +
                                       (cu_ptr)NCCL_BUFFER_UNIT * made->lsa_barrier_at,
                            .stride = stride,
                            .barriers = (uint32_t)barriers};
    return ORIEL_OK;
}

static oriel_status open_lsa(oriel_comm *comm, struct oriel_nccl *nccl)
{
    oriel_nccl_wait wait = oriel_nccl_patience(comm, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    int barriers = ((const oriel_devices *)comm->devices)->ctas;
    nccl_device_needs needs = {.size = sizeof needs,
                               .magic = NCCL_MAGIC,
                               .version = NCCL_DEVICE_VERSION,
                               .lsa_barriers = barriers};
    oriel_status st = oriel_nccl_links_device(&nccl->links, &needs, &wait, nccl->ways->made);

    for (int i = 0; i < nccl->links.n && st == ORIEL_OK; i++)
        st = describe_lsa(comm, nccl, i, barriers);
    return st;
}

static oriel_status find_multimem(struct oriel_nccl *nccl)
{
    const nccl_library *calls = nccl->links.nccl;
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < nccl->links.n && st == ORIEL_OK; i++) {
        void *at = NULL;

        if (calls->multimem_pointer != NULL)
            st = oriel_nccl_check(calls, nccl->links.links[i].comm,
                                  calls->multimem_pointer(nccl->heaps[i], 0, &at),
                                  "asking for a multimem address");
        nccl->ways->of[i].multimem = (cu_ptr)(uintptr_t)at;
        if (st == ORIEL_OK && at == NULL)
            st = oriel_fail(ORIEL_ERR_UNSUPPORTED,
                            "NCCL has no multimem address of the window of rank %d: that needs "
                            "GPUs of sm_90 or newer, one for each rank, behind an NVSwitch",
                            nccl->links.first + i);
    }
    return st;
}

/* ---- coming and going ------------------------------------------------------------------------ */

static oriel_nccl_ways *ways_new(int n)
{
    oriel_nccl_ways *ways = oriel_sys_now->alloc(sizeof *ways);

    if (ways == NULL)
        return NULL;
    ways->n = n;
    ways->of = oriel_sys_now->alloc((size_t)n * sizeof *ways->of);
    ways->made = oriel_sys_now->alloc((size_t)n * sizeof *ways->made);
    if (ways->of != NULL && ways->made != NULL)
        return ways;
    oriel_sys_now->release(ways->of);
    oriel_sys_now->release(ways->made);
    oriel_sys_now->release(ways);
    return NULL;
}

oriel_status oriel_nccl_ways_open(oriel_comm *comm, struct oriel_nccl *nccl)
{
    oriel_nccl_ways *ways = nccl->ways = ways_new(nccl->links.n);
    oriel_status st;

    if (ways == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for NCCL's streams");
    st =
        oriel_nccl_note(comm, check_calls(nccl->links.nccl), ways->no_calls, sizeof ways->no_calls);
    if (st == ORIEL_OK && ways->no_calls[0] == '\0')
        st = open_calls(comm, nccl);
    if (st == ORIEL_OK)
        st = oriel_nccl_note(comm, check_lsa(nccl->links.nccl), ways->no_lsa, sizeof ways->no_lsa);
    if (st == ORIEL_OK && ways->no_lsa[0] == '\0')
        st = oriel_nccl_note(comm, open_lsa(comm, nccl), ways->no_lsa, sizeof ways->no_lsa);
    if (st == ORIEL_OK)
        st =
            oriel_nccl_note(comm, find_multimem(nccl), ways->no_multimem, sizeof ways->no_multimem);
    return st;
}

void oriel_nccl_ways_close(struct oriel_nccl *nccl, int all)
{
    oriel_nccl_ways *ways = nccl->ways;

    if (ways == NULL)
        return;
    for (int i = 0; i < ways->n; i++) {
        oriel_nccl_way *way = &ways->of[i];
        cu_context back;

        oriel_cu->context_push(nccl->links.links[i].gpu->context);
        if (all && ways->made[i].magic == NCCL_MAGIC)
            nccl->links.nccl->dev_comm_destroy(nccl->links.links[i].comm, &ways->made[i]);
        if (way->fork != NULL)
            oriel_cu->event_destroy(way->fork);
        if (way->join != NULL)
            oriel_cu->event_destroy(way->join);
        if (way->stream != NULL)
            oriel_cu->stream_destroy(way->stream);
        oriel_cu->context_pop(&back);
    }
    oriel_sys_now->release(ways->of);
    oriel_sys_now->release(ways->made);
    oriel_sys_now->release(ways);
    nccl->ways = NULL;
}

const oriel_nccl_ways *oriel_nccl_ways_of(const oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;

    return devices != NULL && devices->nccl != NULL ? devices->nccl->ways : NULL;
}
