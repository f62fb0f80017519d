/* How the processes of a job find each other. Every process says hello in the
 * key-value store; process 0 reads all hellos, makes the heap and publishes where
 * to fetch it; the others fetch it and say that they have; process 0 publishes the
 * outcome, so that all have the comm or nobody has. Four messages per process,
 * whatever the size of the job.
 *
 * On several machines process 0 also publishes where each process is. The first process of
 * each other machine is its lead: makes the heap there, connects to process 0 (the
 * bridge) and publishes where the rest of its machine fetches that heap. Two more
 * messages per process.
 *
 * A process that fails, at whatever step, says that as the outcome: the others fail
 * with its sentence instead of waiting for it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/sys.h"
#include "core/start/fabrics.h"
#include "core/machines/bridge.h"
#include "core/start/bootstrap.h"
#include "core/memory/arena.h"
#include "core/start/meeting.h"
#include "core/start/sections.h"

enum { HEAP_ID = 0 };

struct plan {
    uint64_t heap_bytes;         /* of the machine's heap */
    oriel_ticket ticket;         /* where the lead's port is */
    oriel_invitation invitation; /* of the fabric of its GPUs */
    uint64_t num_machines;       /* in process 0's; as wide as the rest, so that no gap is sent */
};

/* Where a process is, as process 0 found out. */
struct place {
    int16_t machine;     /* from 0, in the order of their first processes */
    int16_t local_ranks; /* of this process */
    int32_t pid;         /* as in its hello */
};
struct places {
    oriel_bridge_ticket bridge;      /* how leads reach process 0 */
    struct place of[HEAP_MAX_RANKS]; /* by process number */
};

/* A machine: processes share memory when they run on one kernel and can reach each
 * other's abstract Unix sockets, which belong to a network namespace. */
static void name_host(oriel_hello *hello)
{
    if (oriel_sys_now->read_line("/proc/sys/kernel/random/boot_id", hello->boot,
                                 sizeof hello->boot) != 0)
        hello->boot[0] = '\0';
    if (oriel_sys_now->read_link("/proc/self/ns/net", hello->net, sizeof hello->net) != 0)
        hello->net[0] = '\0';
    snprintf(hello->host, sizeof hello->host, "%s", oriel_config_string(ORIEL_OPT_HOSTID));
}

/* What is unknown may be the same. */
static int is_same_place(const char *mine, const char *theirs, size_t len)
{
    return mine[0] == '\0' || theirs[0] == '\0' || strncmp(mine, theirs, len) == 0;
}

static int is_same_machine(const oriel_hello *a, const oriel_hello *b)
{
    return is_same_place(a->boot, b->boot, sizeof a->boot) &&
           is_same_place(a->net, b->net, sizeof a->net) &&
           strncmp(a->host, b->host, sizeof a->host) == 0;
}

static oriel_status check_hello(int process, const oriel_hello *mine, const oriel_hello *theirs)
{
    if (strncmp(mine->version, theirs->version, sizeof mine->version) != 0)
        return oriel_fail(
            ORIEL_ERR_MISMATCH,
            "process 0 runs oriel %.16s and process %d runs %.16s; install one version",
            mine->version, process, theirs->version);
    if (mine->num_processes != theirs->num_processes)
        return oriel_fail(ORIEL_ERR_MISMATCH,
                          "num_processes is %d on process 0 and %d on process "
                          "%d",
                          mine->num_processes, theirs->num_processes, process);
    if (mine->team != theirs->team)
        return oriel_fail(ORIEL_ERR_MISMATCH,
                          "ORIEL_TEAM is %d on process 0 and %d on process %d: set it alike on all",
                          mine->team, theirs->team, process);
    /* On another machine the secret alone says that a process belongs to the job. */
    if (mine->uid != theirs->uid && is_same_machine(mine, theirs))
        return oriel_fail(ORIEL_ERR_AUTH, "process %d runs as uid %u, process 0 as uid %u", process,
                          theirs->uid, mine->uid);
    if (theirs->local_ranks < 1 || theirs->local_ranks > HEAP_MAX_RANKS)
        return oriel_fail(ORIEL_ERR_INVALID, "process %d brings %d ranks; 1 to %d are possible",
                          process, theirs->local_ranks, HEAP_MAX_RANKS);
    return ORIEL_OK;
}

static oriel_status join_heap(oriel_comm *comm)
{
    heap_proc *proc = &comm->heap.procs[comm->process];
    oriel_status st = comm->fabric->member_join(&comm->heap.segment, comm->process);

    if (st != ORIEL_OK)
        return st;
    for (int p = 0; p < comm->num_processes; p++)
        comm->here += oriel_comm_is_here(comm, p);
    comm->size = (int)comm->heap.header->num_ranks;
    comm->first_rank = proc->first_rank;
    comm->local_ranks = proc->local_ranks;
    if (comm->on_gpus && comm->num_processes > 1 && !comm->has_port) {
        st = comm->fabric->port_create(&comm->port);
        if (st != ORIEL_OK)
            return st;
        comm->has_port = 1;
    }
    proc->ticket = comm->port.ticket;
    oriel_spread_show(comm);
    proc->pid = (int32_t)getpid();
    oriel_reads_show(comm);
    atomic_store(&proc->state, PROC_ALIVE);
    return oriel_watch_start(comm);
}

/* What is known of processes of other machines; more comes by the bridge. */
static void place_all(oriel_comm *comm, const struct place *places, const int *local_ranks)
{
    int machine = places[comm->process].machine;
    int machines[HEAP_MAX_RANKS];

    for (int p = 0; p < comm->num_processes; p++) {
        machines[p] = places[p].machine;
        if (machines[p] == machine)
            continue;
        comm->heap.procs[p].pid = places[p].pid;
        atomic_store(&comm->heap.procs[p].state, PROC_ALIVE);
    }
    oriel_world_place(&comm->heap, local_ranks, machines, machine, comm->process);
}

static oriel_status lead_heap(oriel_comm *comm, const struct place *places)
{
    heap_header plan;
    oriel_segment segment;
    int local_ranks[HEAP_MAX_RANKS];
    oriel_status st;

    for (int p = 0; p < comm->num_processes; p++)
        local_ranks[p] = places[p].local_ranks;
    st = oriel_heap_plan(oriel_heap_rooms, local_ranks, comm->num_processes, &plan);
    if (st != ORIEL_OK)
        return st;
    st = comm->fabric->segment_create(plan.bytes, &segment);
    if (st != ORIEL_OK)
        return st;
    oriel_heap_format(segment, &plan, &comm->heap);
    oriel_arena_plan(&comm->heap);
    place_all(comm, places, local_ranks);
    if (comm->num_processes > 1) {
        st = comm->fabric->port_create(&comm->port);
        if (st != ORIEL_OK)
            return st;
        comm->has_port = 1;
        comm->lead = comm->port.ticket;
    }
    return join_heap(comm);
}

/* What the hellos say. */
struct census {
    struct places places; /* what process 0 publishes */
    int num_machines;     /* that were found */
    oriel_hello *leads;   /* of the machines */
    oriel_hello of[];     /* by process; a version of "" is not read yet. The leads follow. */
};

static void count(struct census *census, int process)
{
    const oriel_hello *hello = &census->of[process];
    int machine = 0;

    while (machine < census->num_machines && !is_same_machine(&census->leads[machine], hello))
        machine++;
    if (machine == census->num_machines)
        census->leads[census->num_machines++] = *hello;
    census->places.of[process] = (struct place){.machine = (int16_t)machine,
                                                .local_ranks = (int16_t)hello->local_ranks,
                                                .pid = hello->life.pid};
}

/* ORIEL_IN_PROGRESS: it is not there yet. */
static oriel_status read_hello(oriel_meeting *meeting, const oriel_hello *mine, int process,
                               oriel_hello *theirs)
{
    oriel_hello hello;
    oriel_status st = oriel_meeting_try(meeting, "hello", process, &hello, sizeof hello);

    if (st != ORIEL_OK)
        return st;
    oriel_lives_follow(&meeting->lives, process, &hello.life);
    st = check_hello(process, mine, &hello);
    if (st != ORIEL_OK)
        meeting->culprit = process;
    *theirs = hello;
    return st;
}

/* In any order: a process that has come may end while another is waited for. At the deadline the
 * first that is missing is named. */
static int next_guest(const oriel_meeting *meeting, const struct census *census, int process)
{
    int n = meeting->num_processes;
    int next = oriel_now() < meeting->deadline ? process % (n - 1) + 1 : 1;

    while (census->of[next].version[0] != '\0')
        next = next % (n - 1) + 1;
    return next;
}

static oriel_status collect_hellos(oriel_meeting *meeting, const oriel_hello *mine,
                                   struct census *census)
{
    int left = mine->num_processes - 1;
    int p = left; /* the next is 1 */

    census->of[0] = *mine;
    while (left > 0) {
        oriel_status st;

        p = next_guest(meeting, census, p);
        st = read_hello(meeting, mine, p, &census->of[p]);
        if (st != ORIEL_OK && st != ORIEL_IN_PROGRESS)
            return st;
        left -= st == ORIEL_OK;
    }
    for (p = 0; p < mine->num_processes; p++)
        count(census, p);
    return ORIEL_OK;
}

/* The heap is there until everybody has fetched it. */
static oriel_status collect_joined(oriel_meeting *meeting)
{
    oriel_status st = ORIEL_OK;
    uint32_t joined;

    for (int p = 1; st == ORIEL_OK && p < meeting->num_processes; p++)
        st = oriel_meeting_get(meeting, "joined", p, &joined, sizeof joined);
    return st;
}

static struct plan plan_of(const oriel_comm *comm, int num_machines)
{
    return (struct plan){.ticket = comm->lead,
                         .invitation = comm->invitation,
                         .heap_bytes = comm->heap.segment.bytes,
                         .num_machines = (uint64_t)num_machines};
}

/* Process 0's part until the others are told. */
static oriel_status lead_all(oriel_comm *comm, oriel_meeting *meeting, const oriel_hello *mine,
                             int *num_machines_p)
{
    size_t n = (size_t)comm->num_processes;
    struct census *census = oriel_sys_now->alloc(sizeof *census + 2 * n * sizeof *mine);
    const oriel_device_fabric *fabric = NULL;
    oriel_status st;

    if (census == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %d processes", comm->num_processes);
    census->leads = census->of + n;
    st = collect_hellos(meeting, mine, census);
    if (st == ORIEL_OK)
        st = lead_heap(comm, census->places.of);
    if (st == ORIEL_OK && census->num_machines > 1)
        st = oriel_bridge_open(comm, &census->places.bridge);
    if (st == ORIEL_OK && comm->on_gpus)
        st = oriel_device_fabric_choose(census->num_machines, &fabric);
    if (st == ORIEL_OK && comm->on_gpus)
        st = fabric->invite(&comm->invitation);
    if (st == ORIEL_OK && census->num_machines > 1)
        st = oriel_meeting_set(meeting, "places", 0, &census->places, sizeof census->places);
    *num_machines_p = census->num_machines;
    oriel_sys_now->release(census);
    return st;
}

static oriel_status lead(oriel_comm *comm, oriel_meeting *meeting, const oriel_hello *mine)
{
    struct plan plan;
    int num_machines = 1;
    oriel_status st = lead_all(comm, meeting, mine, &num_machines);

    if (st != ORIEL_OK || comm->num_processes == 1)
        return st;
    plan = plan_of(comm, num_machines);
    st = oriel_meeting_set(meeting, "plan", 0, &plan, sizeof plan);
    if (st == ORIEL_OK)
        st = collect_joined(meeting);
    return st == ORIEL_OK ? oriel_meeting_succeed(meeting) : st;
}

static oriel_status attach(oriel_comm *comm, const oriel_meeting *meeting, const struct plan *plan)
{
    oriel_segment segment;
    oriel_heap heap;
    oriel_status st;

    comm->lead = plan->ticket;
    comm->invitation = plan->invitation;
    st = comm->fabric->segment_fetch(&plan->ticket, HEAP_ID, plan->heap_bytes,
                                     meeting->deadline - oriel_now(), &segment);
    if (st != ORIEL_OK)
        return st;
    st = oriel_heap_open(oriel_heap_rooms, segment, &heap);
    /* The lead has looked at the hellos of its own processes alone. */
    if (st == ORIEL_OK && (int)heap.header->num_processes != comm->num_processes)
        st = oriel_fail(ORIEL_ERR_MISMATCH, "num_processes is %d here and %u on process 0",
                        comm->num_processes, heap.header->num_processes);
    if (st != ORIEL_OK) {
        comm->fabric->segment_close(&segment);
        return st;
    }
    comm->heap = heap;
    return join_heap(comm);
}

/* The lead of another machine than process 0's. */
static oriel_status lead_machine(oriel_comm *comm, const oriel_meeting *meeting,
                                 const struct places *places)
{
    struct plan plan;
    oriel_status st = lead_heap(comm, places->of);

    if (st == ORIEL_OK)
        st = oriel_bridge_join(comm, &places->bridge, meeting->deadline);
    if (st != ORIEL_OK)
        return st;
    plan = plan_of(comm, (int)comm->heap.header->num_machines);
    return oriel_meeting_set(meeting, "heap", comm->process, &plan, sizeof plan);
}

/* One of several machines: process 0's heap is of use on its own alone. */
static oriel_status attach_here(oriel_comm *comm, oriel_meeting *meeting,
                                const struct plan *of_process_0)
{
    struct places *places = oriel_sys_now->alloc(sizeof *places);
    struct plan plan = *of_process_0;
    int first = 0;
    oriel_status st;

    if (places == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %d processes", comm->num_processes);
    st = oriel_meeting_get(meeting, "places", 0, places, sizeof *places);
    while (st == ORIEL_OK && places->of[first].machine != places->of[comm->process].machine)
        first++;
    comm->invitation = plan.invitation;
    if (st == ORIEL_OK && first == comm->process) {
        st = lead_machine(comm, meeting, places);
    } else if (st == ORIEL_OK) {
        if (first > 0)
            st = oriel_meeting_get(meeting, "heap", first, &plan, sizeof plan);
        if (st == ORIEL_OK)
            st = attach(comm, meeting, &plan);
    }
    oriel_sys_now->release(places);
    return st;
}

static oriel_status follow(oriel_comm *comm, oriel_meeting *meeting)
{
    const uint32_t joined = 1;
    struct plan plan;
    oriel_status st = oriel_meeting_get(meeting, "plan", 0, &plan, sizeof plan);

    if (st == ORIEL_OK)
        st = plan.num_machines > 1 ? attach_here(comm, meeting, &plan)
                                   : attach(comm, meeting, &plan);
    if (st == ORIEL_OK)
        st = oriel_meeting_set(meeting, "joined", comm->process, &joined, sizeof joined);
    return st == ORIEL_OK ? oriel_meeting_end(meeting) : st;
}

static void write_hello(const oriel_comm *comm, const oriel_comm_params *params,
                        oriel_hello *hello_p)
{
    *hello_p = (oriel_hello){.num_processes = comm->num_processes,
                             .local_ranks = params->local_ranks,
                             .team = (int32_t)oriel_config_number(ORIEL_OPT_TEAM),
                             .uid = (uint32_t)geteuid()};
    snprintf(hello_p->version, sizeof hello_p->version, "%s", ORIEL_VERSION_STRING);
    if (comm->num_processes == 1)
        return;
    oriel_life_show(&hello_p->life);
    name_host(hello_p);
}

/* `why`: the sentence of `mine`. */
static oriel_status meet(oriel_comm *comm, const oriel_hello *hello,
                         const oriel_comm_params *params, oriel_status mine, const char *why)
{
    oriel_meeting meeting;
    oriel_status st = oriel_meeting_open(&meeting, comm, params, hello, mine);

    if (mine != ORIEL_OK)
        st = oriel_fail(mine, "%s", why);
    else if (st == ORIEL_OK)
        st = comm->process == 0 ? lead(comm, &meeting, hello) : follow(comm, &meeting);
    if (st != ORIEL_OK)
        st = oriel_meeting_fail(&meeting, st);
    oriel_meeting_close(&meeting);
    return st;
}

oriel_status oriel_bootstrap(oriel_comm *comm, const oriel_comm_params *params, oriel_status mine)
{
    char why[HEAP_TEXT] = "";
    oriel_hello hello;
    oriel_status st = mine;

    if (st == ORIEL_OK)
        st = oriel_fabric_choose(comm->process, &comm->fabric);
    if (st != ORIEL_OK)
        snprintf(why, sizeof why, "%s", oriel_last_error());
    write_hello(comm, params, &hello);
    if (comm->num_processes > 1)
        st = meet(comm, &hello, params, st, why);
    else if (st == ORIEL_OK)
        st = lead(comm, NULL, &hello);
    if (st == ORIEL_OK)
        oriel_spread_begin(comm);
    return st;
}
