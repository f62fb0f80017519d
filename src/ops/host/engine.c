#include <errno.h>
#include <string.h>

#include "base/leave.h"
#include "base/log.h"
#include "base/sys.h"
#include "ops/host/engine.h"

enum { MAX_THREADS = 512, BATCH = 64 };
/* How much longer than a spin a call stays in XLA's thread: the first part awake,
 * the rest asleep, since the one it waits for may need this very core. Leaving
 * the thread costs two more switches. */
enum { LINGER_SPINS = 10 };

struct oriel_engine {
    oriel_comm *comm;           /* whose calls it drives */
    pthread_mutex_t lock;       /* of all below */
    pthread_cond_t work;        /* a driver is wanted, or the end */
    pthread_cond_t drained;     /* pending went to 0, or a thread ended */
    oriel_request *head, *tail; /* pending, not busy */
    oriel_request *free;        /* for the next calls */
    void *slabs;                /* each starts with a pointer to the next */
    int pending;                /* listed and busy ones */
    int threads;                /* all, MAX_THREADS at most */
    int idle;                   /* of them: they sleep */
    int driving;                /* of them: they step requests ... */
    int max_driving;            /* ... and so many may */
    int stop;                   /* threads are to end */
    oriel_leavers leavers;      /* those that have */
};

/* ---- requests ------------------------------------------------------------------- */

static int grow(oriel_engine *engine)
{
    size_t head = sizeof(void *) * 2; /* keeps requests aligned */
    char *slab = oriel_sys_now->alloc(head + BATCH * sizeof(oriel_request));

    if (slab == NULL)
        return 0;
    memcpy(slab, &engine->slabs, sizeof engine->slabs);
    engine->slabs = slab;
    for (int i = 0; i < BATCH; i++) {
        oriel_request *request = (oriel_request *)(void *)(slab + head) + i;
        request->next = engine->free;
        engine->free = request;
    }
    return 1;
}

oriel_request *oriel_engine_take(oriel_engine *engine)
{
    oriel_request *request = NULL;

    pthread_mutex_lock(&engine->lock);
    if (engine->free != NULL || grow(engine)) {
        request = engine->free;
        engine->free = request->next;
        request->sent = NULL;
    }
    pthread_mutex_unlock(&engine->lock);
    return request;
}

/* Called with the lock held. */
static void release(oriel_engine *engine, oriel_request *request)
{
    request->next = engine->free;
    engine->free = request;
    if (request->sent != NULL) {
        request->sent->next = engine->free;
        engine->free = request->sent;
    }
}

void oriel_engine_give(oriel_engine *engine, oriel_request *request)
{
    pthread_mutex_lock(&engine->lock);
    release(engine, request);
    pthread_mutex_unlock(&engine->lock);
}

static void append(oriel_engine *engine, oriel_request *request)
{
    request->next = NULL;
    if (engine->tail != NULL)
        engine->tail->next = request;
    else
        engine->head = request;
    engine->tail = request;
}

static oriel_request *pop(oriel_engine *engine)
{
    oriel_request *request = engine->head;

    if (request != NULL) {
        engine->head = request->next;
        if (engine->head == NULL)
            engine->tail = NULL;
    }
    return request;
}

/* ---- XLA's threads ----------------------------------------------------------------- */

static uint32_t progress_of(const oriel_request *request)
{
    return oriel_request_progress(request) +
           (request->sent != NULL ? oriel_request_progress(request->sent) : 0);
}

oriel_status oriel_engine_linger(oriel_request *request)
{
    oriel_comm *comm = request->comm;
    uint32_t before = progress_of(request);
    double moved = oriel_now();
    oriel_waiter waiter = {0};
    oriel_status st;

    while ((st = oriel_request_step(request)) == ORIEL_IN_PROGRESS) {
        double now = oriel_now();

        if (progress_of(request) != before) {
            before = progress_of(request);
            moved = now;
            oriel_waiter_end(comm, &waiter);
        }
        if (request->left || now - moved >= LINGER_SPINS * comm->spin)
            break;
        if (now - moved < comm->spin)
            oriel_relax(1);
        else
            oriel_waiter_sleep(comm, &waiter, LINGER_SPINS * comm->spin);
    }
    oriel_waiter_end(comm, &waiter);
    if (st == ORIEL_IN_PROGRESS && request->cell == NULL)
        oriel_request_leave(request); /* there is no room for a cell */
    return st;
}

/* ---- threads --------------------------------------------------------------------- */

static void *engine_main(void *arg);

/* Called with the lock held: has enough threads driving for what is pending. */
static void want_driver(oriel_engine *engine)
{
    pthread_t thread;

    if (engine->driving >= engine->max_driving || engine->driving >= engine->pending)
        return;
    if (engine->idle > 0) {
        pthread_cond_signal(&engine->work);
        return;
    }
    if (engine->threads >= MAX_THREADS)
        return;
    engine->threads++;
    if (oriel_sys_now->thread(&thread, engine_main, engine) != 0) {
        engine->threads--;
        oriel_log(ORIEL_LOG_ERROR, "no engine thread: %s", strerror(errno));
        return;
    }
}

/* The request has an outcome: another thread drives on while this one reports.
 * Called and returns with the lock held. */
static void complete(oriel_engine *engine, oriel_request *request, oriel_status status)
{
    engine->driving--;
    engine->pending--;
    want_driver(engine);
    pthread_mutex_unlock(&engine->lock);
    /* A driver that went to sleep has not looked at what was in this one's hands. */
    oriel_comm_ring(engine->comm, engine->comm->process);
    request->done(request, status);
    pthread_mutex_lock(&engine->lock);
    release(engine, request);
    if (engine->pending == 0)
        pthread_cond_broadcast(&engine->drained);
}

/* Steps every listed request once. Returns 1 when this thread stopped driving
 * because it had an outcome to report; it waits for nothing then. */
static int drive_round(oriel_engine *engine, oriel_waiter *waiter, int thorough)
{
    /* `rounds` bounds the loop: a request that another thread appends meanwhile
     * is left for the next round. */
    for (int rounds = engine->pending; rounds > 0; rounds--) {
        oriel_request *request = pop(engine);
        oriel_status st;

        if (request == NULL)
            break;
        pthread_mutex_unlock(&engine->lock);
        if (thorough)
            request->polls = 0;
        st = oriel_request_step(request);
        pthread_mutex_lock(&engine->lock);
        if (st == ORIEL_IN_PROGRESS) {
            append(engine, request);
            continue;
        }
        oriel_waiter_end(engine->comm, waiter);
        complete(engine, request, st);
        return 1;
    }
    return 0;
}

/* Called and returns with the lock held. */
static void drive(oriel_engine *engine)
{
    oriel_waiter waiter = {0};
    int thorough = 0;

    engine->driving++;
    while (engine->pending > 0) {
        if (drive_round(engine, &waiter, thorough))
            return;
        pthread_mutex_unlock(&engine->lock);
        thorough = oriel_comm_pause(engine->comm, &waiter);
        pthread_mutex_lock(&engine->lock);
    }
    oriel_waiter_end(engine->comm, &waiter);
    engine->driving--;
}

static void *engine_main(void *arg)
{
    oriel_engine *engine = arg;

    pthread_mutex_lock(&engine->lock);
    while (!engine->stop) {
        if (engine->pending > 0 && engine->driving < engine->max_driving &&
            engine->driving < engine->pending) {
            drive(engine);
            continue;
        }
        engine->idle++;
        pthread_cond_wait(&engine->work, &engine->lock);
        engine->idle--;
    }
    engine->threads--;
    pthread_cond_broadcast(&engine->drained);
    oriel_leave(&engine->leavers, &engine->lock);
    return NULL;
}

void oriel_engine_submit(oriel_engine *engine, oriel_request *request)
{
    pthread_mutex_lock(&engine->lock);
    append(engine, request);
    engine->pending++;
    want_driver(engine);
    if (engine->threads == 0) {
        /* No thread is to be had, and this is the only request: do it here. */
        pop(engine);
        engine->pending--;
        pthread_mutex_unlock(&engine->lock);
        request->done(request, oriel_request_run(request));
        oriel_engine_give(engine, request);
        return;
    }
    pthread_mutex_unlock(&engine->lock);
    /* A driver that sleeps must take the new one into its round. */
    oriel_comm_ring(engine->comm, engine->comm->process);
}

oriel_status oriel_engine_create(oriel_comm *comm, oriel_engine **engine_p)
{
    oriel_engine *engine = oriel_sys_now->alloc(sizeof *engine);

    if (engine == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for the engine");
    engine->comm = comm;
    engine->max_driving = oriel_cpu_count() < 8 ? oriel_cpu_count() : 8;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->work, NULL);
    pthread_cond_init(&engine->drained, NULL);
    *engine_p = engine;
    return ORIEL_OK;
}

/* Called with the lock held. */
static void drain(oriel_engine *engine, double patience_s)
{
    oriel_comm *comm = engine->comm;
    double until = oriel_now() + patience_s;

    while (engine->pending > 0 && oriel_now() < until) {
        pthread_mutex_unlock(&engine->lock);
        oriel_sys_now->poll(NULL, 0, 1);
        pthread_mutex_lock(&engine->lock);
    }
    if (engine->pending > 0)
        oriel_comm_abort(comm, ORIEL_ERR_PEER, comm->first_rank, comm->process,
                         "process %d left with %d operations in flight", comm->process,
                         engine->pending);
    while (engine->pending > 0)
        pthread_cond_wait(&engine->drained, &engine->lock);
}

void oriel_engine_destroy(oriel_engine *engine, double patience_s)
{
    if (engine == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    drain(engine, patience_s);
    engine->stop = 1;
    pthread_cond_broadcast(&engine->work);
    while (engine->threads > 0)
        pthread_cond_wait(&engine->drained, &engine->lock);
    oriel_leave(&engine->leavers, &engine->lock);
    while (engine->slabs != NULL) {
        void *slab = engine->slabs;
        memcpy(&engine->slabs, slab, sizeof engine->slabs);
        oriel_sys_now->release(slab);
    }
    pthread_mutex_destroy(&engine->lock);
    pthread_cond_destroy(&engine->work);
    pthread_cond_destroy(&engine->drained);
    oriel_sys_now->release(engine);
}
