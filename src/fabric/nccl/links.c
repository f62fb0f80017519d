#include "fabric/nccl/links.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"

enum { EAGER_TURNS = 2000 }; /* looks before the first pause */

oriel_status oriel_nccl_id(nccl_id *id_p)
{
    const nccl_library *nccl;
    oriel_status st = oriel_nccl_open(&nccl);

    return st == ORIEL_OK ? oriel_nccl_check(nccl, NULL, nccl->id_make(id_p), "making an id") : st;
}

/* ---- waiting ------------------------------------------------------------------------------ */

static oriel_status settle_one(const oriel_nccl_links *links, int i, const char *what,
                               const oriel_nccl_wait *wait)
{
    nccl_comm comm = links->links[i].comm;

    for (int turn = 0;; turn++) {
        nccl_result state = NCCL_SUCCESS;
        nccl_result asked = links->nccl->comm_state(comm, &state);

        if (asked != NCCL_SUCCESS || state != NCCL_IN_PROGRESS)
            return oriel_nccl_check(links->nccl, comm, asked != NCCL_SUCCESS ? asked : state, what);
        if (wait->stops != NULL && wait->stops(wait->of))
            return oriel_fail(ORIEL_ERR_REVOKED, "%s was given up: the comm is revoked", what);
        if (oriel_now() > wait->until)
            return oriel_fail(ORIEL_ERR_TIMEOUT, "NCCL: %s did not end in time on rank %d", what,
                              links->first + i);
        if (turn < EAGER_TURNS)
            oriel_relax(1);
        else
            oriel_sys_now->poll(NULL, 0, 1);
    }
}

oriel_status oriel_nccl_links_settle(const oriel_nccl_links *links, int from, int to,
                                     const char *what, const oriel_nccl_wait *wait)
{
    oriel_status st = ORIEL_OK;

    for (int i = from; i < to && st == ORIEL_OK; i++)
        st = settle_one(links, i, what, wait);
    return st;
}

/* NCCL wants what one thread starts on several communicators in a group. */
static nccl_result start_each(const oriel_nccl_links *links, oriel_nccl_call call, void *arg)
{
    nccl_result result = links->nccl->group_start();
    nccl_result ended;

    for (int i = 0; i < links->n && result == NCCL_SUCCESS; i++) {
        oriel_cuda_enter(links->links[i].gpu);
        result = call(links, i, arg);
        oriel_cuda_leave();
        if (result == NCCL_IN_PROGRESS)
            result = NCCL_SUCCESS;
    }
    ended = links->nccl->group_end();
    return result != NCCL_SUCCESS ? result : ended;
}

oriel_status oriel_nccl_links_each(const oriel_nccl_links *links, oriel_nccl_call call, void *arg,
                                   const char *what, const oriel_nccl_wait *wait)
{
    nccl_result result = start_each(links, call, arg);

    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        return oriel_nccl_check(links->nccl, NULL, result, what);
    return oriel_nccl_links_settle(links, 0, links->n, what, wait);
}

/* ---- opening ------------------------------------------------------------------------------ */

static oriel_status check_plan(const nccl_library *nccl, const oriel_nccl_plan *plan)
{
    if (!plan->shared)
        return ORIEL_OK;
    if (nccl->version < NCCL_SHARES_GPU)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "ranks share a GPU, which NCCL allows from 2.30 on; %s is %d.%d.%d",
                          nccl->file, NCCL_PARTS(nccl->version));
    /* It reads this when the first communicator is made. Threads that read the environment
     * meanwhile are in danger, so nothing is set that is there already. */
    if (getenv("NCCL_MULTI_RANK_GPU_ENABLE") == NULL)
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    return ORIEL_OK;
}

static nccl_config config_of(const oriel_nccl_plan *plan)
{
    nccl_config config = oriel_nccl_config();

    config.blocking = 0;
    config.comm_name = "oriel";
    if (plan->max_ctas > 0)
        config.max_ctas = plan->max_ctas;
    return config;
}

static nccl_result create_one(const oriel_nccl_links *links, int i, void *arg)
{
    const oriel_nccl_plan *plan = arg;
    nccl_config config = config_of(plan);

    return links->nccl->comm_create(&links->links[i].comm, plan->size, plan->id, plan->first + i,
                                    &config);
}

/* XLA may have used the library before, without the variable. */
static oriel_status explain(const oriel_nccl_plan *plan, oriel_status st)
{
    return plan->shared && st == ORIEL_ERR_SYSTEM
               ? oriel_fail_in(st, "ranks share a GPU: set NCCL_MULTI_RANK_GPU_ENABLE=1 before "
                                   "the program starts")
               : st;
}

oriel_status oriel_nccl_links_open(const oriel_nccl_plan *plan, const oriel_gpu *const *gpus,
                                   const oriel_nccl_wait *wait, oriel_nccl_links *links_p)
{
    oriel_nccl_links links = {.n = plan->n, .first = plan->first, .size = plan->size};
    oriel_status st = oriel_nccl_open(&links.nccl);

    if (st == ORIEL_OK)
        st = check_plan(links.nccl, plan);
    if (st != ORIEL_OK)
        return st;
    links.links = oriel_sys_now->alloc((size_t)plan->n * sizeof *links.links);
    if (links.links == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %d communicators", plan->n);
    for (int i = 0; i < plan->n; i++) {
        links.links[i].gpu = gpus[i];
        pthread_mutex_init(&links.links[i].lock, NULL);
    }
    st = oriel_nccl_links_each(&links, create_one, (void *)(uintptr_t)plan, "making a communicator",
                               wait);
    if (st != ORIEL_OK) {
        st = explain(plan, st);
        oriel_nccl_links_close(&links, 0, 5.0);
        return st;
    }
    *links_p = links;
    return ORIEL_OK;
}

/* ---- closing ------------------------------------------------------------------------------ */

/* NCCL may take its time, or never come back; so a thread goes there. The one that leaves last
 * frees this. */
struct closing {
    oriel_nccl_links links; /* what is closed */
    int all;                /* all ranks come: finalize first; else abort */
    double until;           /* as oriel_now(): then it is given up */
    _Atomic int ended;      /* by the thread: NCCL came back */
    _Atomic int holders;    /* the thread and its starter, less those that have left */
};

static void let_go(struct closing *closing)
{
    if (atomic_fetch_sub(&closing->holders, 1) > 1)
        return;
    for (int i = 0; i < closing->links.n; i++)
        pthread_mutex_destroy(&closing->links.links[i].lock);
    oriel_sys_now->release(closing->links.links);
    oriel_sys_now->release(closing);
}

static nccl_result finalize_one(const oriel_nccl_links *links, int i, void *arg)
{
    (void)arg;
    return links->nccl->comm_finalize(links->links[i].comm);
}

static void *close_main(void *arg)
{
    struct closing *closing = arg;
    const oriel_nccl_links *links = &closing->links;
    oriel_nccl_wait wait = {.until = closing->until};
    int good = closing->all && oriel_nccl_links_each(links, finalize_one, NULL,
                                                     "leaving a communicator", &wait) == ORIEL_OK;

    for (int i = 0; i < links->n; i++) {
        const oriel_nccl_link *link = &links->links[i];

        if (link->comm == NULL)
            continue;
        oriel_cuda_enter(link->gpu);
        (good ? links->nccl->comm_destroy : links->nccl->comm_abort)(link->comm);
        oriel_cuda_leave();
    }
    atomic_store(&closing->ended, 1);
    let_go(closing);
    return NULL;
}

int oriel_nccl_links_close(oriel_nccl_links *links, int all, double seconds)
{
    struct closing *closing;
    pthread_t thread;
    int ended;

    if (links->links == NULL)
        return 1;
    closing = oriel_sys_now->alloc(sizeof *closing);
    if (closing == NULL)
        return 0;
    closing->links = *links;
    closing->all = all;
    closing->until = oriel_now() + seconds;
    atomic_init(&closing->holders, 2);
    memset(links, 0, sizeof *links);
    if (oriel_sys_now->thread(&thread, close_main, closing) != 0)
        return 0;
    while (!atomic_load(&closing->ended) && oriel_now() < closing->until + 0.3)
        oriel_sys_now->poll(NULL, 0, 1);
    ended = atomic_load(&closing->ended);
    if (ended)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    if (!ended)
        oriel_log(ORIEL_LOG_ERROR, "NCCL does not let go of a communicator within %.0f s", seconds);
    let_go(closing);
    return ended;
}

/* ---- memory ------------------------------------------------------------------------------- */

oriel_status oriel_nccl_memory_create(const nccl_library *nccl, const oriel_gpu *gpu, size_t bytes,
                                      cu_ptr *at_p)
{
    void *at = NULL;
    oriel_status st;

    oriel_cuda_enter(gpu);
    st = oriel_nccl_check(nccl, NULL, nccl->mem_alloc(&at, bytes), "allocating device memory");
    oriel_cuda_leave();
    if (st == ORIEL_OK)
        st = oriel_cuda_clear(gpu, (cu_ptr)(uintptr_t)at, bytes);
    if (st != ORIEL_OK) {
        oriel_nccl_memory_free(nccl, gpu, (cu_ptr)(uintptr_t)at);
        return oriel_fail_in(st, "%zu bytes on device %d", bytes, gpu->ordinal);
    }
    *at_p = (cu_ptr)(uintptr_t)at;
    return ORIEL_OK;
}

void oriel_nccl_memory_free(const nccl_library *nccl, const oriel_gpu *gpu, cu_ptr at)
{
    if (at == 0)
        return;
    oriel_cuda_enter(gpu);
    if (nccl->mem_free((void *)(uintptr_t)at) != NCCL_SUCCESS)
        oriel_log(ORIEL_LOG_WARN, "NCCL does not free memory of device %d", gpu->ordinal);
    oriel_cuda_leave();
}

/* ---- windows ------------------------------------------------------------------------------ */

struct registration {
    const cu_ptr *at;     /* per link: where the memory begins */
    const size_t *bytes;  /* per link: how much */
    int how;              /* NCCL_WINDOW_... */
    nccl_window *windows; /* per link: the result */
};

static nccl_result register_one(const oriel_nccl_links *links, int i, void *arg)
{
    const struct registration *r = arg;

    return links->nccl->window_register(links->links[i].comm, (void *)(uintptr_t)r->at[i],
                                        r->bytes[i], &r->windows[i], r->how);
}

/* It says success, and gives no window, where it has no symmetric memory. */
static oriel_status check_windows(const oriel_nccl_links *links, const nccl_window *windows)
{
    for (int i = 0; i < links->n; i++) {
        if (windows[i] == NULL)
            return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                              "NCCL has no symmetric memory for rank %d: it gave no window "
                              "(NCCL_CUMEM_ENABLE=0, or ranks that do not reach each other?)",
                              links->first + i);
    }
    return ORIEL_OK;
}

oriel_status oriel_nccl_links_register(oriel_nccl_links *links, const cu_ptr *at,
                                       const size_t *bytes, int how, const oriel_nccl_wait *wait,
                                       nccl_window *windows_p)
{
    struct registration r = {.at = at, .bytes = bytes, .how = how, .windows = windows_p};
    oriel_status st;

    memset(windows_p, 0, (size_t)links->n * sizeof *windows_p);
    st = oriel_nccl_links_each(links, register_one, &r, "registering memory", wait);
    return st == ORIEL_OK ? check_windows(links, windows_p) : st;
}

void oriel_nccl_links_deregister(oriel_nccl_links *links, const nccl_window *windows)
{
    for (int i = 0; i < links->n; i++) {
        oriel_nccl_link *link = &links->links[i];
        nccl_result result;

        if (windows[i] == NULL)
            continue;
        oriel_cuda_enter(link->gpu); /* else NCCL opens device 0 for this thread */
        result = links->nccl->window_deregister(link->comm, windows[i]);
        oriel_cuda_leave();
        if (result != NCCL_SUCCESS)
            oriel_log(ORIEL_LOG_WARN, "NCCL does not let go of a window of rank %d",
                      links->first + i);
    }
}

/* 2.28 can be asked by kernels alone; the window says it itself. */
static oriel_status read_head(const oriel_nccl_link *link, nccl_window window, int place,
                              cu_ptr *at_p)
{
    nccl_window_head head;
    oriel_status st = oriel_cuda_read(link->gpu, &head, (cu_ptr)(uintptr_t)window, sizeof head);

    if (st == ORIEL_OK)
        *at_p = head.lsa_base + ((cu_ptr)place * head.stride << 32);
    return st;
}

oriel_status oriel_nccl_links_pointer(const oriel_nccl_links *links, int i, nccl_window window,
                                      int rank, cu_ptr *at_p)
{
    const oriel_nccl_link *link = &links->links[i];
    nccl_team team = links->nccl->team_lsa(link->comm);
    int place = team.rank + rank - (links->first + i);
    void *at = NULL;
    oriel_status st;

    if (place < 0 || place >= team.size)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "rank %d does not reach the memory of rank %d: NCCL finds %d of %d ranks "
                          "within reach of load and store",
                          links->first + i, rank, team.size, links->size);
    if (links->nccl->lsa_pointer == NULL)
        return read_head(link, window, place, at_p);
    st = oriel_nccl_check(links->nccl, link->comm, links->nccl->lsa_pointer(window, 0, place, &at),
                          "asking for the address of a window");
    if (st == ORIEL_OK)
        *at_p = (cu_ptr)(uintptr_t)at;
    return st;
}
