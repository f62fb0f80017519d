/* How the processes of a job find each other. Every process says hello in the
 * key-value store; process 0 reads all hellos, makes the heap and publishes where
 * to fetch it (or why it could not); the others fetch it and say whether they
 * could; process 0 publishes the outcome, so that all have the comm or nobody has.
 * Four messages per process, whatever the size of the job.
 *
 * On several machines process 0 also publishes who is where. The first process of
 * each other machine is its lead: makes the heap there, connects to process 0 (the
 * bridge) and publishes where the rest of its machine fetches that heap. Two more
 * messages per process.
 *
 * A process that fails still comes to the meeting, to say so: the others fail
 * with its sentence instead of waiting for it. */
#define _GNU_SOURCE
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

/* How far a process got: why there is no heap, or no comm. */
struct report {
    int32_t status; /* oriel_status */
    char text[HEAP_TEXT];
};

struct hello {
    struct report report;
    char version[16];
    char boot[40]; /* empty: unknown */
    char net[40];
    char host[64]; /* ORIEL_HOSTID */
    int32_t num_processes;
    int32_t local_ranks;
    uint32_t uid;
    int32_t pid;
};

struct plan {
    uint64_t heap_bytes;
    struct report report;
    oriel_ticket ticket;
    oriel_invitation invitation; /* of the fabric of its GPUs */
    uint32_t num_machines;       /* in process 0's */
};

/* Who is where, as process 0 found out. */
struct place {
    int16_t machine;
    int16_t local_ranks;
    int32_t pid;
};
struct places {
    oriel_bridge_ticket bridge;
    struct place of[HEAP_MAX_RANKS];
};

/* A machine: processes share memory when they run on one kernel and can reach each
 * other's abstract Unix sockets, which belong to a network namespace. */
static void name_host(struct hello *hello)
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

static int is_same_machine(const struct hello *a, const struct hello *b)
{
    return is_same_place(a->boot, b->boot, sizeof a->boot) &&
           is_same_place(a->net, b->net, sizeof a->net) &&
           strncmp(a->host, b->host, sizeof a->host) == 0;
}

static struct report report_of(oriel_status status)
{
    struct report report = {.status = (int32_t)status};

    if (status != ORIEL_OK)
        snprintf(report.text, sizeof report.text, "%s", oriel_last_error());
    return report;
}

/* Takes over another process's failure. */
static oriel_status status_of(const struct report *report)
{
    if (report->status == ORIEL_OK)
        return ORIEL_OK;
    return oriel_fail((oriel_status)report->status, "%.*s", HEAP_TEXT - 1, report->text);
}

static oriel_status check_hello(int process, const struct hello *mine, const struct hello *theirs)
{
    oriel_status st;

    if (strncmp(mine->version, theirs->version, sizeof mine->version) != 0)
        return oriel_fail(
            ORIEL_ERR_MISMATCH,
            "process 0 runs oriel %.16s and process %d runs %.16s; install one version",
            mine->version, process, theirs->version);
    st = status_of(&theirs->report);
    if (st != ORIEL_OK)
        return oriel_fail_in(st, "process %d", process);
    if (mine->num_processes != theirs->num_processes)
        return oriel_fail(ORIEL_ERR_MISMATCH,
                          "num_processes is %d on process 0 and %d on process "
                          "%d",
                          mine->num_processes, theirs->num_processes, process);
    /* Elsewhere the secret alone says who belongs to the job. */
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
    comm->joined = 1;
    for (int p = 0; p < comm->num_processes; p++)
        comm->here += oriel_comm_is_here(comm, p);
    comm->size = (int)comm->heap.header->num_ranks;
    comm->first_rank = proc->first_rank;
    comm->local_ranks = proc->local_ranks;
    if (comm->serves && !comm->has_port) {
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
    struct places places;
    int num_machines;
    struct hello leads[]; /* of the machines */
};

static void count(struct census *census, int process, const struct hello *hello)
{
    int machine = 0;

    while (machine < census->num_machines && !is_same_machine(&census->leads[machine], hello))
        machine++;
    if (machine == census->num_machines)
        census->leads[census->num_machines++] = *hello;
    census->places.of[process] = (struct place){
        .machine = (int16_t)machine, .local_ranks = (int16_t)hello->local_ranks, .pid = hello->pid};
}

/* Waits for all, whatever they say, so that nobody comes to a store that is gone. */
static oriel_status collect_hellos(const oriel_meeting *meeting, const struct hello *mine,
                                   struct census *census)
{
    struct report first = mine->report;

    count(census, 0, mine);
    for (int p = 1; p < mine->num_processes; p++) {
        struct hello theirs;
        oriel_status st = oriel_meeting_get(meeting, "hello", p, &theirs, sizeof theirs);

        if (st == ORIEL_OK)
            st = check_hello(p, mine, &theirs);
        if (st == ORIEL_OK)
            count(census, p, &theirs);
        else if (first.status == ORIEL_OK)
            first = report_of(st);
    }
    return status_of(&first);
}

/* Waits for all here too: the heap is there until everybody has tried to fetch it. */
static oriel_status collect_reports(const oriel_meeting *meeting, int num_processes)
{
    struct report first = {.status = ORIEL_OK};

    for (int p = 1; p < num_processes; p++) {
        struct report theirs;
        oriel_status st = oriel_meeting_get(meeting, "joined", p, &theirs, sizeof theirs);

        if (st == ORIEL_OK)
            st = status_of(&theirs);
        if (st != ORIEL_OK && first.status == ORIEL_OK)
            first = report_of(oriel_fail_in(st, "process %d", p));
    }
    return status_of(&first);
}

static void write_plan(const oriel_comm *comm, oriel_status st, struct plan *plan_p)
{
    *plan_p = (struct plan){.report = report_of(st),
                            .ticket = comm->lead,
                            .invitation = comm->invitation,
                            .heap_bytes = comm->heap.segment.bytes};
}

/* Process 0's part until the others are told. */
static oriel_status lead_all(oriel_comm *comm, const oriel_meeting *meeting,
                             const struct hello *mine, int *num_machines_p)
{
    size_t n = (size_t)comm->num_processes;
    struct census *census = oriel_sys_now->alloc(sizeof *census + n * sizeof *mine);
    const oriel_device_fabric *fabric = NULL;
    oriel_status st;

    if (census == NULL) {
        struct hello theirs;

        for (int p = 1; p < comm->num_processes; p++)
            (void)oriel_meeting_get(meeting, "hello", p, &theirs, sizeof theirs);
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %d processes", comm->num_processes);
    }
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

static oriel_status lead(oriel_comm *comm, const oriel_meeting *meeting, const struct hello *mine)
{
    struct plan plan;
    struct report outcome;
    int num_machines = 1;
    oriel_status st = lead_all(comm, meeting, mine, &num_machines);
    oriel_status told;

    if (comm->num_processes == 1)
        return st;
    write_plan(comm, st, &plan);
    plan.num_machines = (uint32_t)num_machines;
    told = oriel_meeting_set(meeting, "plan", 0, &plan, sizeof plan);
    if (st != ORIEL_OK || told != ORIEL_OK)
        return st != ORIEL_OK ? status_of(&plan.report) : told;
    st = collect_reports(meeting, comm->num_processes);
    outcome = report_of(st);
    told = oriel_meeting_set(meeting, "outcome", 0, &outcome, sizeof outcome);
    return st != ORIEL_OK ? status_of(&outcome) : told;
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
    oriel_status told;

    if (st == ORIEL_OK)
        st = oriel_bridge_join(comm, &places->bridge, meeting->deadline);
    write_plan(comm, st, &plan);
    told = oriel_meeting_set(meeting, "heap", comm->process, &plan, sizeof plan);
    return st != ORIEL_OK ? status_of(&plan.report) : told;
}

/* One of several machines: process 0's heap is of use on its own alone. */
static oriel_status attach_here(oriel_comm *comm, const oriel_meeting *meeting,
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
            st = status_of(&plan.report);
        if (st == ORIEL_OK)
            st = attach(comm, meeting, &plan);
    }
    oriel_sys_now->release(places);
    return st;
}

static oriel_status follow(oriel_comm *comm, const oriel_meeting *meeting, const struct hello *mine)
{
    struct plan plan;
    struct report joined;
    struct report outcome;
    oriel_status st = oriel_meeting_set(meeting, "hello", comm->process, mine, sizeof *mine);

    if (st == ORIEL_OK)
        st = oriel_meeting_get(meeting, "plan", 0, &plan, sizeof plan);
    if (mine->report.status != ORIEL_OK)
        return status_of(&mine->report);
    if (st == ORIEL_OK && plan.report.status != ORIEL_OK)
        return status_of(&plan.report);
    if (st == ORIEL_OK)
        st = plan.num_machines > 1 ? attach_here(comm, meeting, &plan)
                                   : attach(comm, meeting, &plan);
    joined = report_of(st);
    st = oriel_meeting_set(meeting, "joined", comm->process, &joined, sizeof joined);
    if (st == ORIEL_OK)
        st = oriel_meeting_get(meeting, "outcome", 0, &outcome, sizeof outcome);
    if (st == ORIEL_OK && outcome.status != ORIEL_OK && outcome.status != joined.status)
        return status_of(&outcome);
    return joined.status != ORIEL_OK ? status_of(&joined) : st;
}

static void say_hello(const oriel_comm *comm, const oriel_comm_params *params, oriel_status mine,
                      struct hello *hello_p)
{
    *hello_p = (struct hello){.report = report_of(mine),
                              .num_processes = comm->num_processes,
                              .local_ranks = params->local_ranks,
                              .uid = (uint32_t)geteuid(),
                              .pid = (int32_t)getpid()};
    snprintf(hello_p->version, sizeof hello_p->version, "%s", ORIEL_VERSION_STRING);
    if (comm->num_processes > 1)
        name_host(hello_p);
}

static oriel_status meet(oriel_comm *comm, const struct hello *mine,
                         const oriel_comm_params *params, oriel_meeting *meeting)
{
    oriel_status st = oriel_meeting_open(meeting, comm, params);

    if (st == ORIEL_OK)
        st = comm->process == 0 ? lead(comm, meeting, mine) : follow(comm, meeting, mine);
    else if (mine->report.status != ORIEL_OK)
        st = status_of(&mine->report);
    oriel_meeting_close(meeting);
    return st;
}

oriel_status oriel_bootstrap(oriel_comm *comm, const oriel_comm_params *params, oriel_status mine)
{
    oriel_meeting meeting;
    struct hello hello;
    oriel_status st = oriel_meeting_plan(&meeting, comm, params);

    if (st != ORIEL_OK)
        return st;
    if (mine == ORIEL_OK)
        mine = oriel_fabric_choose(comm->process, &comm->fabric);
    say_hello(comm, params, mine, &hello);
    st = comm->num_processes == 1 ? lead(comm, &meeting, &hello)
                                  : meet(comm, &hello, params, &meeting);
    if (st == ORIEL_OK)
        oriel_spread_begin(comm);
    return st;
}
