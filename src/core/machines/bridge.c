/* The bridge between the machines of one world: a thread in each machine's lead. What it
 * carries is the state of the heap, not a sequence of events: of each process how many
 * meetings it has come to and with what vote, and whether it has left or died; of each rank
 * what it shows of its GPU; and the abort record. Each end remembers what it has told the
 * other and tells what differs. Process 0 has a link to every other lead, and tells each all
 * that it knows of the rest, so that whatever is in its heap gets everywhere.
 *
 * The bridge is one more party to each meeting of its machine (control.c). It comes when all
 * processes everywhere have, and when all links have been told so: from then on processes may
 * come to the next meeting, which overwrites what they said in this one. For the same reason
 * it does not take in that somebody has come to the next meeting before this one is over here
 * and was passed on to all.
 *
 * A link that ends is a machine whose lead has died, or that cannot be reached any more:
 * the comm is revoked, unless the lead has said that it leaves. Other processes of a machine
 * are watched there. */
#include "core/machines/bridge.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "core/machines/link.h"
#include "core/store/peer.h"

enum { LOOK_MS = 20, BUSY_MS = 1, STRANGERS = 16, POLL_LINKS = 2 + STRANGERS };
#define CLOSE_S 2.0

struct oriel_bridge {
    oriel_comm *comm; /* that it serves */
    pthread_t thread; /* looks at links and heap */
    int running;      /* the thread was started */
    int wake;         /* eventfd */
    _Atomic int ends; /* the thread is to end */
    uint32_t arrived; /* meetings that the bridge has come to */

    oriel_link *links;    /* process 0: to all other leads, in any order; else: to process 0 */
    int num_links;        /* so many of them */
    int max_links;        /* there is room for so many */
    struct pollfd *polls; /* of the thread: wake, listener, strangers, links */

    int listener;                           /* process 0, until all have come; -1: none */
    oriel_store_host host;                  /* what strangers must prove; process 0 alone */
    char secret[2 * BRIDGE_SECRET + 4];     /* of the ticket; the host points to it */
    oriel_store_peer *strangers[STRANGERS]; /* have not proved the secret yet */
};

static int is_hub(const oriel_comm *comm)
{
    return comm->process == 0;
}

/* ---- telling ---------------------------------------------------------------------- */

/* Whether the other end hears of a process from here. */
static int is_told(const oriel_comm *comm, const oriel_link *link, int process)
{
    int machine = comm->heap.procs[process].machine;

    return machine != link->machine && (is_hub(comm) || oriel_comm_is_here(comm, process));
}

static void say(oriel_link *link, enum link_kind kind, int process)
{
    link->out = (link_message){.kind = kind, .process = process, .rank = -1};
    link->left = sizeof link->out;
}

static int tell_abort(oriel_comm *comm, oriel_link *link)
{
    const heap_abort *record;

    if (link->aborted || !oriel_comm_aborted(comm))
        return 0;
    link->aborted = 1;
    record = oriel_comm_abort_record(comm);
    if (record == NULL)
        return 0;
    say(link, LINK_ABORT, record->process);
    link->out.code = (int32_t)record->code;
    link->out.rank = record->rank;
    memcpy(link->out.text, record->text, sizeof link->out.text);
    return 1;
}

/* What a process has shown before it came. */
static int tell_ranks(const oriel_comm *comm, oriel_link *link, int process)
{
    const heap_proc *proc = &comm->heap.procs[process];

    for (int r = proc->first_rank; r < proc->first_rank + proc->local_ranks; r++) {
        const heap_rank *rank = &comm->heap.ranks[r];

        if (link->ranks[r] || !rank->has_card)
            continue;
        link->ranks[r] = 1;
        say(link, LINK_RANK, process);
        link->out.rank = r;
        memcpy(link->out.text, rank->card, sizeof rank->card);
        return 1;
    }
    return 0;
}

static int tell_process(oriel_comm *comm, oriel_link *link, int process)
{
    heap_proc *proc = &comm->heap.procs[process];
    uint32_t came = atomic_load(&proc->control_round);
    uint32_t leaving = atomic_load(&proc->leaving);
    uint32_t state = atomic_load(&proc->state);
    uint32_t both = (state >= PROC_LEFT ? state : 0) | leaving << 8;

    if (link->rounds[process] != came) {
        if (tell_ranks(comm, link, process))
            return 1;
        if (process == 0 && link->shared != came) {
            link->shared = came;
            say(link, LINK_SHARE, 0);
            memcpy(link->out.text, oriel_control(&comm->heap)->shared, sizeof link->out.text);
            return 1;
        }
        link->rounds[process] = came;
        say(link, LINK_COME, process);
        link->out.round = came - 1;
        link->out.code = (int32_t)proc->vote[(came - 1) & 1];
        memcpy(link->out.text, proc->vote_text[(came - 1) & 1], sizeof link->out.text);
        return 1;
    }
    if (link->states[process] != both) {
        link->states[process] = both;
        say(link, LINK_STATE, process);
        link->out.code = (int32_t)both;
        return 1;
    }
    return 0;
}

/* The next message, if there is one to send. */
static int tell(oriel_comm *comm, oriel_link *link)
{
    if (link->machine < 0)
        return 0;
    if (tell_abort(comm, link))
        return 1;
    for (int p = 0; p < comm->num_processes; p++) {
        if (is_told(comm, link, p) && tell_process(comm, link, p))
            return 1;
    }
    return 0;
}

/* Whether all links have been told how far a process, or all (-1), have come. */
static int is_passed_on(const oriel_bridge *bridge, int process)
{
    const oriel_comm *comm = bridge->comm;

    for (int i = 0; i < bridge->num_links; i++) {
        const oriel_link *link = &bridge->links[i];

        if (link->fd < 0 || link->machine < 0)
            continue;
        if (link->left > 0)
            return 0;
        for (int p = 0; p < comm->num_processes; p++) {
            if ((process < 0 || p == process) && is_told(comm, link, p) &&
                link->rounds[p] != atomic_load(&comm->heap.procs[p].control_round))
                return 0;
        }
    }
    return 1;
}

/* ---- hearing ------------------------------------------------------------------------ */

static void hear_abort(oriel_comm *comm, oriel_link *link)
{
    const link_message *m = &link->in;

    link->aborted = 1; /* it knows */
    oriel_comm_abort(comm, (oriel_status)m->code, m->rank, m->process, "%.*s", HEAP_TEXT - 1,
                     m->text);
}

static void hear_state(oriel_comm *comm, const link_message *m)
{
    heap_proc *proc = &comm->heap.procs[m->process];
    uint32_t state = (uint32_t)m->code & 0xff;

    if ((uint32_t)m->code >> 8 != LEAVING_NOT)
        atomic_store(&proc->leaving, (uint32_t)m->code >> 8);
    if (state >= PROC_LEFT)
        atomic_store(&proc->state, state);
    oriel_comm_ring_all(comm);
}

static void hear_rank(oriel_comm *comm, const link_message *m)
{
    heap_rank *rank = &comm->heap.ranks[m->rank];

    memcpy(rank->card, m->text, sizeof rank->card);
    rank->has_card = 1;
}

static void hear_join(const oriel_bridge *bridge, oriel_link *link)
{
    const oriel_comm *comm = bridge->comm;
    int machine = link->in.process;

    for (int p = comm->num_processes - 1; p > 0; p--) {
        if (comm->heap.procs[p].machine == machine)
            link->lead = p;
    }
    link->machine = machine;
    say(link, LINK_WELCOME, 0);
}

static const oriel_link *find_link(const oriel_bridge *bridge, int machine)
{
    for (int i = 0; i < bridge->num_links; i++) {
        if (bridge->links[i].machine == machine)
            return &bridge->links[i];
    }
    return NULL;
}

/* Whether a message is one that may come from there. */
static int is_sound(const oriel_bridge *bridge, const oriel_link *link)
{
    const oriel_comm *comm = bridge->comm;
    const link_message *m = &link->in;

    if (link->machine < 0)
        return m->kind == LINK_JOIN && m->process > 0 &&
               m->process < (int)comm->heap.header->num_machines &&
               find_link(bridge, m->process) == NULL;
    if (m->kind == LINK_ABORT || m->kind == LINK_SHARE)
        return 1;
    if (m->process < 0 || m->process >= comm->num_processes || oriel_comm_is_here(comm, m->process))
        return 0;
    if (m->kind == LINK_RANK)
        return m->rank >= 0 && m->rank < comm->size &&
               comm->heap.ranks[m->rank].process == m->process;
    if (m->kind == LINK_STATE)
        return ((uint32_t)m->code & 0xff) <= PROC_DEAD &&
               (uint32_t)m->code >> 8 <= LEAVING_FINALIZE;
    return m->kind == LINK_COME;
}

/* Takes the message in; 0: not yet, nor what comes behind it: until this machine has closed its
 * own round, which takes no longer than a look. */
static int hear(const oriel_bridge *bridge, oriel_link *link)
{
    oriel_comm *comm = bridge->comm;
    const link_message *m = &link->in;

    switch (m->kind) {
    case LINK_JOIN:
        hear_join(bridge, link);
        break;
    case LINK_COME:
        if (m->round != oriel_control_round(comm) || !is_passed_on(bridge, m->process))
            return 0;
        oriel_control_come(comm, m->process, m->round, (oriel_status)m->code, m->text);
        break;
    case LINK_STATE:
        hear_state(comm, m);
        break;
    case LINK_RANK:
        hear_rank(comm, m);
        break;
    case LINK_SHARE:
        memcpy(oriel_control(&comm->heap)->shared, m->text, HEAP_TEXT);
        break;
    default:
        hear_abort(comm, link);
    }
    link->got = 0;
    return 1;
}

/* ---- the thread ----------------------------------------------------------------------- */

static void lose(oriel_bridge *bridge, oriel_link *link, const char *why)
{
    oriel_comm *comm = bridge->comm;
    heap_proc *proc = link->lead >= 0 ? &comm->heap.procs[link->lead] : NULL;

    oriel_sys_now->close(link->fd);
    link->fd = -1;
    if (proc == NULL || atomic_load(&proc->state) >= PROC_LEFT)
        return;
    atomic_store(&proc->state, PROC_DEAD);
    oriel_comm_abort(comm, ORIEL_ERR_PEER, proc->first_rank, link->lead,
                     "process %d (pid %d, machine %d) is gone: %.120s", link->lead, (int)proc->pid,
                     proc->machine, why);
}

/* All that has come, then all there is to tell. */
static void serve(oriel_bridge *bridge, oriel_link *link)
{
    oriel_status st = oriel_link_receive(link);

    while (st == ORIEL_OK && oriel_link_full(link)) {
        if (!is_sound(bridge, link))
            st = oriel_fail(ORIEL_ERR_MISMATCH, "it sent message %u, which makes no sense",
                            link->in.kind);
        else if (!hear(bridge, link))
            break;
        else
            st = oriel_link_receive(link);
    }
    /* What had come before the end is heard first: that it leaves, or why it failed. */
    if (st != ORIEL_OK) {
        lose(bridge, link, oriel_last_error());
        return;
    }
    st = oriel_link_flush(link);
    while (st == ORIEL_OK && link->left == 0 && tell(bridge->comm, link))
        st = oriel_link_flush(link);
    if (st != ORIEL_OK)
        lose(bridge, link, oriel_last_error());
}

/* Whether somebody has come to the meeting at hand. */
static int is_busy(const oriel_comm *comm)
{
    uint32_t round = oriel_control_round(comm);
    int busy = 0;

    for (int p = 0; p < comm->num_processes && !busy; p++)
        busy = atomic_load(&comm->heap.procs[p].control_round) > round;
    return busy && !oriel_comm_aborted(comm);
}

static void attend(oriel_bridge *bridge)
{
    uint32_t round = oriel_control_round(bridge->comm);

    if (bridge->arrived > round || !oriel_control_complete(bridge->comm, round) ||
        !is_passed_on(bridge, -1))
        return;
    bridge->arrived = round + 1;
    oriel_control_arrive(bridge->comm);
}

/* ---- strangers ---------------------------------------------------------------------- */

static void admit(oriel_bridge *bridge)
{
    int fd = oriel_sys_now->accept(bridge->listener);
    int at = 0;

    if (fd < 0)
        return;
    while (at < STRANGERS && bridge->strangers[at] != NULL)
        at++;
    if (at == STRANGERS) { /* the oldest has had its time */
        oriel_store_peer_destroy(bridge->strangers[0]);
        memmove(bridge->strangers, bridge->strangers + 1,
                (STRANGERS - 1) * sizeof *bridge->strangers);
        bridge->strangers[--at] = NULL;
    }
    if (oriel_store_peer_create(fd, &bridge->host, oriel_now(), &bridge->strangers[at]) != ORIEL_OK)
        bridge->strangers[at] = NULL;
}

/* A link that ended before it named its machine leaves its place. */
static void promote(oriel_bridge *bridge, oriel_store_peer *peer)
{
    int fd = oriel_store_peer_take(peer);
    int at = 0;

    if (fd < 0) {
        oriel_store_peer_destroy(peer);
        return;
    }
    while (at < bridge->num_links && (bridge->links[at].fd >= 0 || bridge->links[at].machine >= 0))
        at++;
    if (at < bridge->num_links)
        oriel_link_free(&bridge->links[at]);
    if (at == bridge->max_links ||
        oriel_link_init(&bridge->links[at], fd, &bridge->comm->heap) != ORIEL_OK)
        oriel_sys_now->close(fd);
    else if (at == bridge->num_links)
        bridge->num_links++;
}

static void serve_strangers(oriel_bridge *bridge)
{
    double now = oriel_now();

    for (int i = 0; i < STRANGERS; i++) {
        oriel_store_peer *peer = bridge->strangers[i];
        oriel_status st;

        if (peer == NULL)
            continue;
        st = oriel_store_peer_service(peer, bridge->polls[2 + i].revents, &bridge->host, now);
        if (st == ORIEL_OK)
            st = oriel_store_peer_tick(peer, &bridge->host, now);
        if (st == ORIEL_OK && !oriel_store_peer_is_proven(peer))
            continue;
        bridge->strangers[i] = NULL;
        if (st == ORIEL_OK) {
            promote(bridge, peer);
            continue;
        }
        oriel_log(ORIEL_LOG_WARN, "bridge: closed the connection of %s: %s",
                  oriel_store_peer_name(peer), oriel_last_error());
        oriel_store_peer_destroy(peer);
    }
}

/* Nobody else has to come. */
static void stop_listening(oriel_bridge *bridge)
{
    if (bridge->listener >= 0)
        oriel_sys_now->close(bridge->listener);
    bridge->listener = -1;
    for (int i = 0; i < STRANGERS; i++) {
        oriel_store_peer_destroy(bridge->strangers[i]);
        bridge->strangers[i] = NULL;
    }
}

static int all_are_here(const oriel_bridge *bridge)
{
    int here = 0;

    for (int i = 0; i < bridge->num_links; i++)
        here += bridge->links[i].machine >= 0;
    return here + 1 == (int)bridge->comm->heap.header->num_machines;
}

/* ---- the loop ------------------------------------------------------------------------- */

static void wait_for_news(oriel_bridge *bridge)
{
    struct pollfd *polls = bridge->polls;

    polls[0] = (struct pollfd){.fd = bridge->wake, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = bridge->listener, .events = POLLIN};
    for (int i = 0; i < STRANGERS; i++) {
        const oriel_store_peer *peer = bridge->strangers[i];

        polls[2 + i] = (struct pollfd){.fd = peer != NULL ? oriel_store_peer_fd(peer) : -1,
                                       .events = peer != NULL ? oriel_store_peer_events(peer) : 0};
    }
    for (int i = 0; i < bridge->num_links; i++) {
        const oriel_link *link = &bridge->links[i];

        /* One that waits to be heard is looked at again in a while. */
        polls[POLL_LINKS + i] = (struct pollfd){
            .fd = oriel_link_full(link) ? -1 : link->fd,
            .events = (short)(POLLIN | (link->left > 0 ? POLLOUT : 0)),
        };
    }
    oriel_sys_now->poll(polls, (nfds_t)(POLL_LINKS + bridge->num_links),
                        is_busy(bridge->comm) ? BUSY_MS : LOOK_MS);
}

static void *bridge_main(void *arg)
{
    oriel_bridge *bridge = arg;
    double deadline;

    while (!atomic_load(&bridge->ends)) {
        wait_for_news(bridge);
        if (bridge->listener >= 0) {
            if (bridge->polls[1].revents != 0)
                admit(bridge);
            serve_strangers(bridge);
            if (all_are_here(bridge))
                stop_listening(bridge);
        }
        for (int i = 0; i < bridge->num_links; i++) {
            if (bridge->links[i].fd >= 0)
                serve(bridge, &bridge->links[i]);
        }
        attend(bridge);
    }
    for (int i = 0; i < bridge->num_links; i++) {
        if (bridge->links[i].fd >= 0)
            serve(bridge, &bridge->links[i]);
    }
    deadline = oriel_now() + CLOSE_S;
    for (int i = 0; i < bridge->num_links; i++) {
        if (bridge->links[i].fd >= 0)
            oriel_link_end(&bridge->links[i], deadline);
    }
    return NULL;
}

/* ---- set-up ------------------------------------------------------------------------------ */

static oriel_status bridge_new(oriel_comm *comm, int max_links, oriel_bridge **bridge_p)
{
    oriel_bridge *bridge = oriel_sys_now->alloc(sizeof *bridge);

    if (bridge == NULL)
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "no memory for the bridge between machines");
    comm->bridge = bridge;
    bridge->comm = comm;
    bridge->listener = -1;
    bridge->max_links = max_links;
    bridge->links = oriel_sys_now->alloc((size_t)max_links * sizeof *bridge->links);
    bridge->polls = oriel_sys_now->alloc((size_t)(POLL_LINKS + max_links) * sizeof *bridge->polls);
    bridge->wake = oriel_sys_now->eventfd();
    if (bridge->wake < 0 || bridge->links == NULL || bridge->polls == NULL)
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "no memory for the bridge between machines");
    *bridge_p = bridge;
    return ORIEL_OK;
}

static oriel_status start(oriel_bridge *bridge)
{
    if (oriel_sys_now->thread(&bridge->thread, bridge_main, bridge) != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "no thread for the bridge between machines: %s",
                          strerror(errno));
    bridge->running = 1;
    return ORIEL_OK;
}

oriel_status oriel_bridge_open(oriel_comm *comm, oriel_bridge_ticket *ticket_p)
{
    oriel_bridge *bridge;
    oriel_status st = bridge_new(comm, (int)comm->heap.header->num_machines + STRANGERS, &bridge);

    if (st == ORIEL_OK)
        st = oriel_bridge_listen(ticket_p, &bridge->listener);
    if (st != ORIEL_OK)
        return st;
    memcpy(bridge->secret, ticket_p->secret, sizeof bridge->secret);
    bridge->host.secret = bridge->secret;
    return start(bridge);
}

oriel_status oriel_bridge_join(oriel_comm *comm, const oriel_bridge_ticket *ticket, double deadline)
{
    oriel_bridge *bridge;
    oriel_link *link;
    int fd = -1;
    oriel_status st = bridge_new(comm, 1, &bridge);

    if (st == ORIEL_OK)
        st = oriel_bridge_dial(ticket, deadline, &fd);
    if (st != ORIEL_OK)
        return st;
    link = &bridge->links[0];
    st = oriel_link_init(link, fd, &comm->heap);
    if (st != ORIEL_OK) {
        oriel_sys_now->close(fd);
        return st;
    }
    bridge->num_links = 1;
    say(link, LINK_JOIN, (int)comm->heap.header->machine);
    st = oriel_link_wait(link, deadline);
    if (st != ORIEL_OK)
        return oriel_fail_in(st, "the connection to process 0");
    link->got = 0;
    link->machine = 0;
    link->lead = 0;
    return start(bridge);
}

void oriel_bridge_close(oriel_comm *comm)
{
    oriel_bridge *bridge = comm->bridge;

    if (bridge == NULL)
        return;
    comm->bridge = NULL;
    if (bridge->running) {
        atomic_store(&bridge->ends, 1);
        oriel_sys_now->signal(bridge->wake); /* one that got lost costs LOOK_MS */
        pthread_join(bridge->thread, NULL);
    }
    stop_listening(bridge);
    for (int i = 0; i < bridge->num_links; i++)
        oriel_link_free(&bridge->links[i]);
    if (bridge->wake >= 0)
        oriel_sys_now->close(bridge->wake);
    oriel_sys_now->release(bridge->links);
    oriel_sys_now->release(bridge->polls);
    explicit_bzero(bridge->secret, sizeof bridge->secret);
    oriel_sys_now->release(bridge);
}
