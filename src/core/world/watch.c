/* The watch thread of a process: sees whether its next living neighbour (in a ring
 * over all processes) still holds its life lock, and hands segments to peers that
 * ask. Each dead process is so seen by its nearest living predecessor. The system
 * tells when the neighbour ends, where it can; a thread that wakes up without need
 * makes the scheduler move busy processes about. The predecessor may be stopped, by a
 * debugger or for want of a core: so each also looks at those behind its neighbour, once
 * a second. Where ranks are GPUs it also hears of failures from their kernels, and tells
 * them of others. */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "core/world/comm.h"

/* Between two looks: while the others are about to come, when the system tells, and
 * when it cannot. */
enum { FIRST_MS = 4, TOLD_MS = 1000, LOOK_MS = 100 };
/* How often a process looks at those behind its neighbour, and at how many: looks of all at all
 * would be a million in a world of a thousand. */
#define FURTHER_S 1.0
enum { FURTHER = 64 };

static uint32_t state_of(const oriel_comm *comm, int process)
{
    return atomic_load(&comm->heap.procs[process].state);
}

/* A process that has left or is known dead is no neighbour any more. */
static int next_neighbour(const oriel_comm *comm, int from)
{
    for (int i = 1; i < comm->num_processes; i++) {
        int p = (from + i) % comm->num_processes;
        if (p == comm->process)
            return -1;
        if (oriel_comm_is_here(comm, p) && state_of(comm, p) == PROC_ALIVE)
            return p;
    }
    return -1;
}

static int is_alive(oriel_comm *comm, int process)
{
    uint32_t alive = PROC_ALIVE;

    if (comm->fabric->member_alive(&comm->heap.segment, process))
        return 1;
    /* It may have left in good order between the two looks. */
    if (atomic_compare_exchange_strong(&comm->heap.procs[process].state, &alive, PROC_DEAD))
        oriel_comm_abort_gone(comm, process);
    return 0;
}

/* Returns the neighbour that is alive; -1: there is none. */
static int look(oriel_comm *comm)
{
    int p = comm->process;

    while ((p = next_neighbour(comm, p)) >= 0) {
        if (is_alive(comm, p))
            return p;
    }
    return -1;
}

static void look_further(oriel_comm *comm, int neighbour)
{
    int p = neighbour;

    for (int i = 1; p >= 0 && i < FURTHER; i++) {
        p = next_neighbour(comm, p);
        if (p >= 0)
            is_alive(comm, p);
    }
}

/* The process whose end the system tells this one. */
typedef struct neighbour {
    int process; /* -1: none */
    int fd;      /* readable when it has ended; -1: the system does not tell */
} neighbour;

static void forget(neighbour *next)
{
    if (next->fd >= 0)
        oriel_sys_now->close(next->fd);
    *next = (neighbour){.process = -1, .fd = -1};
}

/* A look that finds it alive after the descriptor was made shows that its pid is still
 * its own. */
static void follow(oriel_comm *comm, neighbour *next)
{
    int process = look(comm);

    if (process == next->process)
        return;
    forget(next);
    next->process = process;
    if (process < 0)
        return;
    next->fd = oriel_sys_now->pidfd(comm->heap.procs[process].pid);
    if (look(comm) != process)
        forget(next);
}

static void *watch_main(void *arg)
{
    oriel_comm *comm = arg;
    neighbour next = {.process = -1, .fd = -1};
    double further_at = oriel_now() + FURTHER_S;
    int pause = FIRST_MS;
    oriel_robust robust;

    oriel_reads_hold_robust(comm, &robust);
    while (!atomic_load(&comm->watch_ends)) {
        struct pollfd fds[3] = {{.fd = comm->watch_wake, .events = POLLIN},
                                {.fd = comm->has_port ? comm->port.fd : -1, .events = POLLIN},
                                {.fd = next.fd, .events = POLLIN}};
        int told = next.fd >= 0 && comm->devices == NULL; /* kernels cannot tell */
        int n = oriel_sys_now->poll(fds, 3, told ? TOLD_MS : pause);

        pause = pause * 2 < LOOK_MS ? pause * 2 : LOOK_MS;
        if (n > 0 && fds[1].revents != 0 && !atomic_load(&comm->watch_ends))
            comm->fabric->port_serve(&comm->port, comm->find_segment, comm);
        if (n > 0 && fds[2].revents != 0) {
            oriel_sys_now->close(next.fd);
            next.fd = -1; /* if it still holds its lock, looks will tell */
        }
        follow(comm, &next);
        if (oriel_now() >= further_at) {
            look_further(comm, next.process);
            further_at = oriel_now() + FURTHER_S;
        }
        oriel_comm_look(comm);
    }
    forget(&next);
    oriel_reads_drop_robust(comm, &robust);
    return NULL;
}

oriel_status oriel_watch_start(oriel_comm *comm)
{
    if (comm->watching || (comm->num_processes == 1 && comm->devices == NULL))
        return ORIEL_OK;
    comm->watch_wake = oriel_sys_now->eventfd();
    if (comm->watch_wake < 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "no eventfd for the watch thread: %s", strerror(errno));
    if (oriel_sys_now->thread(&comm->watch, watch_main, comm) != 0) {
        oriel_status st = oriel_fail(ORIEL_ERR_SYSTEM, "no watch thread: %s", strerror(errno));
        oriel_sys_now->close(comm->watch_wake);
        return st;
    }
    comm->watching = 1;
    return ORIEL_OK;
}

void oriel_watch_stop(oriel_comm *comm)
{
    if (!comm->watching)
        return;
    atomic_store(&comm->watch_ends, 1);
    oriel_sys_now->signal(comm->watch_wake); /* one that got lost costs TOLD_MS */
    pthread_join(comm->watch, NULL);
    oriel_sys_now->close(comm->watch_wake);
    comm->watching = 0;
}
