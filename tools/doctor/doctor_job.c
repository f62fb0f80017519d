/* `oriel doctor --job PID`: what every rank of a running job is doing, and which
 * hold up the others. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "doctor/attach.h"
#include "base/sys.h"
#include "core/world/trace.h"
#include "doctor/doctor.h"
#include "doctor/windows.h"
#include "tool.h"

enum { SENTENCE = 512 };

enum doing { DOING_NOTHING, DOING_CALL, DOING_DONE, DOING_FAILED, DOING_COUNT };

static const char *const doing_names[DOING_COUNT] = {
    [DOING_NOTHING] = "none",
    [DOING_CALL] = "in",
    [DOING_DONE] = "done",
    [DOING_FAILED] = "failed",
};

static const char *const state_names[ORIEL_PROCESS_STATE_COUNT] = {
    [ORIEL_PROCESS_STARTING] = "starting", [ORIEL_PROCESS_ALIVE] = "alive",
    [ORIEL_PROCESS_STOPPED] = "stopped",   [ORIEL_PROCESS_LEFT] = "left",
    [ORIEL_PROCESS_DEAD] = "dead",         [ORIEL_PROCESS_ELSEWHERE] = "elsewhere",
};

/* What a rank is in, or was in last. */
struct rank_view {
    oriel_process_view process;  /* that the rank is of */
    int number;                  /* of the process */
    enum doing doing;            /* what the rest is about */
    const char *operation;       /* its name */
    unsigned long long sequence; /* of the call, as the rank counts */
    unsigned long long bytes;    /* as in its trace */
    double seconds;              /* in it, or since its end */
    int waits_for;               /* rank, -1: nobody */
    int in_flight;               /* calls of this rank that have not ended */
    int moves;                   /* has begun another call within the last moment */
};

struct job_view {
    int n;                   /* ranks of the comm */
    struct rank_view *ranks; /* by rank */
    char failure[HEAP_TEXT]; /* what revoked the comm; "": nothing */
    oriel_windows_view windows;
};

/* ---- reading ------------------------------------------------------------------ */

static int is_open(const heap_trace *entry)
{
    uint32_t state = entry->state;

    return state == TRACE_ENTERED || state == TRACE_ARRIVED;
}

/* The oldest call that has not ended, since the others may be waiting for it;
 * otherwise the last. NULL: none yet. */
static const heap_trace *main_call(const heap_rank *rank, int *in_flight_p)
{
    uint64_t last = rank->traced;
    uint64_t first = last > HEAP_TRACE ? last - HEAP_TRACE + 1 : 1;
    const heap_trace *found = last > 0 ? &rank->trace[last % HEAP_TRACE] : NULL;

    *in_flight_p = 0;
    for (uint64_t s = last; s >= first; s--) {
        const heap_trace *entry = &rank->trace[s % HEAP_TRACE];

        /* An entry that is just being written still has its former number. */
        if (entry->sequence != s || !is_open(entry))
            continue;
        found = entry;
        ++*in_flight_p;
    }
    return found;
}

/* A moment of 0 was not noted down: the call is that young. */
static double since(double moment, double now)
{
    return moment > 0.0 && moment < now ? now - moment : 0.0;
}

static void view_call(const heap_trace *entry, double now, struct rank_view *view)
{
    uint32_t state = entry->state;
    int waits_for = entry->waits_for;

    view->operation = oriel_kind_name(entry->kind);
    view->sequence = entry->sequence;
    view->bytes = entry->bytes;
    view->doing = state == TRACE_DONE     ? DOING_DONE
                  : state == TRACE_FAILED ? DOING_FAILED
                                          : DOING_CALL;
    view->seconds = since(view->doing == DOING_CALL ? entry->begun : entry->ended, now);
    if (view->doing == DOING_CALL)
        view->waits_for = waits_for;
}

/* A meeting of processes is in no trace, and not timed. */
static void view_meeting(const oriel_comm_view *comm, const char *what, int missing,
                         struct rank_view *view)
{
    view->doing = DOING_CALL;
    view->operation = what;
    view->sequence = comm->heap.procs[view->number].control_round;
    view->bytes = 0;
    view->seconds = 0.0;
    view->waits_for = comm->heap.procs[missing].first_rank;
}

static struct rank_view view_rank(const oriel_comm_view *comm, const oriel_windows_view *windows,
                                  int rank)
{
    const heap_rank *shared = &comm->heap.ranks[rank];
    int process = shared->process;
    struct rank_view view = {.number = process, .operation = "-", .waits_for = -1};
    const heap_trace *entry = main_call(shared, &view.in_flight);
    uint64_t bytes;
    int missing;

    if (process < 0 || process >= (int)comm->heap.header->num_processes)
        return view;
    view.process = comm->processes[process];
    view.moves = shared->traced != comm->traced_before[rank];
    if (entry != NULL)
        view_call(entry, comm->taken, &view);
    if (view.doing == DOING_CALL)
        return view;
    missing = oriel_control_missing(&comm->heap, process);
    if (missing >= 0) {
        view_meeting(comm, "meeting", missing, &view);
        return view;
    }
    missing = oriel_windows_missing(windows, process, &bytes);
    if (missing >= 0) {
        view_meeting(comm, "window", missing, &view);
        view.bytes = bytes;
    }
    return view;
}

static int job_view_take(const oriel_comm_view *comm, struct job_view *view_p)
{
    const heap_header *h = comm->heap.header;
    const heap_abort *failure = &oriel_control(&comm->heap)->abort;
    struct job_view view = {.n = (int)h->num_ranks};

    view.ranks = calloc(h->num_ranks, sizeof *view.ranks);
    if (view.ranks == NULL || oriel_windows_take(comm, &view.windows) != 0) {
        free(view.ranks);
        return -1;
    }
    for (int r = 0; r < view.n; r++) {
        view.ranks[r] = view_rank(comm, &view.windows, r);
        if (view.ranks[r].waits_for >= view.n)
            view.ranks[r].waits_for = -1;
    }
    if (failure->word == 2)
        snprintf(view.failure, sizeof view.failure, "%.*s", HEAP_TEXT - 1, failure->text);
    *view_p = view;
    return 0;
}

static void job_view_free(struct job_view *view)
{
    oriel_windows_view_free(&view->windows);
    free(view->ranks);
}

/* ---- which rank holds up others ----------------------------------------------------------- */

/* A rank that is stopped or gone waits for nobody, whatever it noted down before;
 * one that makes call after call waits now and then, but not for long. */
static int is_waiting(const struct rank_view *rank)
{
    return rank->process.state == ORIEL_PROCESS_ALIVE && rank->doing == DOING_CALL &&
           rank->waits_for >= 0 && !rank->moves;
}

/* Where the chain of waits from `rank` ends; -1: in a circle. */
static int culprit_of(const struct job_view *job, int rank)
{
    for (int steps = 0; steps <= job->n; steps++) {
        if (!is_waiting(&job->ranks[rank]))
            return rank;
        rank = job->ranks[rank].waits_for;
    }
    return -1;
}

struct text {
    char bytes[SENTENCE]; /* always ends with a zero byte */
    size_t used;          /* bytes before that */
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *fmt, ...)
{
    size_t room = sizeof text->bytes - text->used;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text->bytes + text->used, room, fmt, args);
    va_end(args);
    if (n > 0)
        text->used += (size_t)n < room ? (size_t)n : room - 1;
}

/* "rank 3", "ranks 0, 2, 5-9": the waiting ranks whose chain ends at `culprit`. */
static int add_waiting(struct text *text, const struct job_view *job, const int *culprits,
                       int culprit)
{
    struct text list = {0};
    int count = 0;

    for (int r = 0; r < job->n; r++) {
        int last = r;

        if (!is_waiting(&job->ranks[r]) || culprits[r] != culprit)
            continue;
        while (last + 1 < job->n && is_waiting(&job->ranks[last + 1]) &&
               culprits[last + 1] == culprit)
            last++;
        add(&list, "%s%d", count > 0 ? ", " : "", r);
        if (last > r)
            add(&list, last > r + 1 ? "-%d" : ", %d", last);
        count += last - r + 1;
        r = last;
    }
    add(text, "rank%s %s wait%s", count > 1 ? "s" : "", list.bytes, count > 1 ? "" : "s");
    return count;
}

static void add_what_it_does(struct text *text, const struct rank_view *rank)
{
    switch (rank->process.state) {
    case ORIEL_PROCESS_STOPPED:
        add(text, "which is stopped (by SIGSTOP, SIGTSTP or a debugger)");
        return;
    case ORIEL_PROCESS_STARTING:
        add(text, "which has not joined yet");
        return;
    case ORIEL_PROCESS_LEFT:
        add(text, "which has left");
        return;
    case ORIEL_PROCESS_DEAD:
        add(text, "which is dead");
        return;
    case ORIEL_PROCESS_ELSEWHERE:
        add(text, "which is on another machine: ask there");
        return;
    case ORIEL_PROCESS_ALIVE:
    case ORIEL_PROCESS_STATE_COUNT:
        break;
    }
    if (rank->doing == DOING_NOTHING)
        add(text, "which is alive and has not called any operation yet");
    else if (rank->doing == DOING_CALL)
        add(text, "which is alive and in %s #%llu of %llu bytes for %.1f s", rank->operation,
            rank->sequence, rank->bytes, rank->seconds);
    else
        add(text,
            "which is alive and in no operation: its last was %s #%llu of %llu bytes, %s %.1f "
            "s ago",
            rank->operation, rank->sequence, rank->bytes, doing_names[rank->doing], rank->seconds);
}

static double longest_wait(const struct job_view *job, const int *culprits, int culprit)
{
    double longest = 0.0;

    for (int r = 0; r < job->n; r++) {
        if (is_waiting(&job->ranks[r]) && culprits[r] == culprit && job->ranks[r].seconds > longest)
            longest = job->ranks[r].seconds;
    }
    return longest;
}

/* One sentence about `culprit` and those that wait for it; 0 where there is none. */
static int describe_culprit(const struct job_view *job, const int *culprits, int culprit,
                            struct text *text)
{
    const struct rank_view *rank = &job->ranks[culprit];
    int waited_for = 0;

    for (int r = 0; r < job->n; r++)
        waited_for |= is_waiting(&job->ranks[r]) && culprits[r] == culprit;
    if (!waited_for && rank->process.state != ORIEL_PROCESS_STOPPED)
        return 0;
    if (waited_for) {
        add_waiting(text, job, culprits, culprit);
        add(text, " (up to %.1f s) for ", longest_wait(job, culprits, culprit));
    } else {
        add(text, "nobody waits for ");
    }
    add(text, "rank %d (pid %d), ", culprit, (int)rank->process.pid);
    add_what_it_does(text, rank);
    return 1;
}

/* Calls `say` with each sentence that closes the report. */
static void conclude(const struct job_view *job, int *culprits,
                     void (*say)(const char *sentence, int number))
{
    int said = 0;
    int circle = 0;

    for (int r = 0; r < job->n; r++) {
        culprits[r] = culprit_of(job, r);
        circle |= culprits[r] < 0;
    }
    if (job->failure[0] != '\0') {
        struct text text = {0};

        add(&text, "the comm has failed: %s", job->failure);
        say(text.bytes, said++);
    }
    for (int r = 0; r < job->n; r++) {
        struct text text = {0};

        if (describe_culprit(job, culprits, r, &text))
            say(text.bytes, said++);
    }
    if (circle) {
        struct text text = {0};

        add_waiting(&text, job, culprits, -1);
        add(&text, " for each other: do they call in different orders?");
        say(text.bytes, said++);
    }
    if (said == 0)
        say("no rank waits long for another", 0);
}

/* ---- printing ---------------------------------------------------------------------- */

static void say_text(const char *sentence, int number)
{
    (void)number;
    printf("%s\n", sentence);
}

static void say_json(const char *sentence, int number)
{
    printf("%s", number > 0 ? ", " : "");
    oriel_json_string(sentence);
}

static void print_rank(int number, const struct rank_view *rank)
{
    char waits_for[24] = "-";

    if (rank->waits_for >= 0)
        snprintf(waits_for, sizeof waits_for, "rank %d", rank->waits_for);
    printf("%4d  %7d  %7d  %-8s  %-6s  %-18s  %8llu  %11llu  %8.1f  %s", number, rank->number,
           (int)rank->process.pid, state_names[rank->process.state], doing_names[rank->doing],
           rank->operation, rank->sequence, rank->bytes, rank->seconds, waits_for);
    if (rank->in_flight > 1)
        printf(" (%d more in flight)", rank->in_flight - 1);
    printf("\n");
}

static void print_text(const struct job_view *job, int *culprits)
{
    printf("%4s  %7s  %7s  %-8s  %-6s  %-18s  %8s  %11s  %8s  %s\n", "rank", "process", "pid",
           "state", "doing", "operation", "sequence", "bytes", "seconds", "waits for");
    for (int r = 0; r < job->n; r++)
        print_rank(r, &job->ranks[r]);
    oriel_windows_print(&job->windows);
    printf("\n");
    conclude(job, culprits, say_text);
}

static void print_json(const struct job_view *job, int *culprits)
{
    printf("{\"ranks\": [");
    for (int r = 0; r < job->n; r++) {
        const struct rank_view *rank = &job->ranks[r];

        printf("%s\n  {\"rank\": %d, \"process\": %d, \"pid\": %d, \"state\": \"%s\", "
               "\"doing\": \"%s\", \"operation\": ",
               r > 0 ? "," : "", r, rank->number, (int)rank->process.pid,
               state_names[rank->process.state], doing_names[rank->doing]);
        oriel_json_string(rank->operation);
        printf(", \"sequence\": %llu, \"bytes\": %llu, \"seconds\": %.3f, \"waits_for\": %d, "
               "\"in_flight\": %d}",
               rank->sequence, rank->bytes, rank->seconds, rank->waits_for, rank->in_flight);
    }
    printf("\n], \"windows\": ");
    oriel_windows_print_json(&job->windows);
    printf(", \"failure\": ");
    oriel_json_string(job->failure);
    printf(", \"verdict\": [");
    conclude(job, culprits, say_json);
    printf("]}");
}

static int print_comm(const oriel_comm_view *comm, int number, int count, int json)
{
    struct job_view job;
    int *culprits;

    if (job_view_take(comm, &job) != 0)
        return -1;
    culprits = calloc((size_t)job.n, sizeof *culprits);
    if (culprits == NULL) {
        job_view_free(&job);
        return -1;
    }
    if (json) {
        printf("%s", number > 0 ? ", " : "");
        print_json(&job, culprits);
    } else {
        printf("%scomm %d of %d: %d ranks in %u processes\n", number > 0 ? "\n" : "", number + 1,
               count, job.n, comm->heap.header->num_processes);
        print_text(&job, culprits);
    }
    free(culprits);
    job_view_free(&job);
    return 0;
}

int oriel_doctor_job(pid_t pid, int json)
{
    static oriel_views views;
    char why[SENTENCE];
    int failed = 0;

    if (oriel_views_take(pid, &views, why, sizeof why) != 0) {
        fprintf(stderr, "oriel doctor: %s\n", why);
        return ORIEL_EXIT_USAGE;
    }
    if (json) {
        printf("{\"version\": ");
        oriel_json_string(oriel_version());
        printf(", \"pid\": %d, \"comms\": [", (int)pid);
    }
    for (int i = 0; i < views.count && !failed; i++)
        failed = print_comm(&views.comms[i], i, views.count, json) != 0;
    if (json)
        printf("]}\n");
    oriel_views_free(&views);
    if (failed)
        fprintf(stderr, "oriel doctor: out of memory\n");
    return failed ? ORIEL_EXIT_FAILED : ORIEL_EXIT_OK;
}
