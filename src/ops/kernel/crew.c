#include "ops/kernel/crew.h"

#include <errno.h>
#include <string.h>

#include "base/leave.h"
#include "base/sys.h"

enum { MAX_THREADS = 4096 };

struct oriel_crew {
    pthread_mutex_t lock;  /* of all below */
    pthread_cond_t work;   /* a task, or the end */
    pthread_cond_t ended;  /* a thread has */
    crew_task *tasks;      /* each has a thread that is free for it */
    int threads;           /* that there are, MAX_THREADS at most */
    int spare;             /* threads that no task is meant for */
    int stop;              /* threads are to end */
    oriel_leavers leavers; /* those that have */
};

static void *crew_main(void *arg)
{
    oriel_crew *crew = arg;

    pthread_mutex_lock(&crew->lock);
    while (!crew->stop) {
        crew_task *task = crew->tasks;

        if (task == NULL) {
            pthread_cond_wait(&crew->work, &crew->lock);
            continue;
        }
        crew->tasks = task->next;
        pthread_mutex_unlock(&crew->lock);
        task->run(task);
        pthread_mutex_lock(&crew->lock);
        crew->spare++;
    }
    crew->threads--;
    pthread_cond_broadcast(&crew->ended);
    oriel_leave(&crew->leavers, &crew->lock);
    return NULL;
}

/* Called with the lock held. */
static int add_thread(oriel_crew *crew)
{
    pthread_t thread;

    if (crew->threads >= MAX_THREADS || oriel_sys_now->thread(&thread, crew_main, crew) != 0)
        return 0;
    crew->threads++;
    crew->spare++;
    return 1;
}

oriel_status oriel_crew_start(oriel_crew *crew, crew_task *tasks, int n)
{
    crew_task *last = tasks;
    oriel_status st = ORIEL_OK;

    while (last->next != NULL)
        last = last->next;
    pthread_mutex_lock(&crew->lock);
    while (crew->spare < n && add_thread(crew)) {
    }
    if (crew->spare < n) {
        st = oriel_fail(ORIEL_ERR_NO_RESOURCE, "no thread for a kernel beside %d others: %s",
                        crew->threads, crew->threads < MAX_THREADS ? strerror(errno) : "too many");
    } else {
        crew->spare -= n;
        last->next = crew->tasks;
        crew->tasks = tasks;
        pthread_cond_broadcast(&crew->work);
    }
    pthread_mutex_unlock(&crew->lock);
    return st;
}

oriel_status oriel_crew_create(oriel_crew **crew_p)
{
    oriel_crew *crew = oriel_sys_now->alloc(sizeof *crew);

    if (crew == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for the threads of kernels");
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->work, NULL);
    pthread_cond_init(&crew->ended, NULL);
    *crew_p = crew;
    return ORIEL_OK;
}

void oriel_crew_destroy(oriel_crew *crew)
{
    if (crew == NULL)
        return;
    pthread_mutex_lock(&crew->lock);
    crew->stop = 1;
    pthread_cond_broadcast(&crew->work);
    while (crew->threads > 0)
        pthread_cond_wait(&crew->ended, &crew->lock);
    oriel_leave(&crew->leavers, &crew->lock);
    pthread_mutex_destroy(&crew->lock);
    pthread_cond_destroy(&crew->work);
    pthread_cond_destroy(&crew->ended);
    oriel_sys_now->release(crew);
}
