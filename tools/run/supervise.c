/* The loop of a job (doctor/job.h): ends, signals, deadlines, output, and what is left behind. */
#include "doctor/job.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "core/store/store.h"
#include "run/strays.h"
#include "tool.h"

static const double term_s = 2.0;         /* between SIGTERM and SIGKILL */
static const double stray_s = 1.0;        /* for what the processes left behind to end */
static const double last_output_s = 2.0;  /* for the output of a stopped job */
static const double sweep_every_s = 0.02; /* strays that are no children of ours */

/* ---- failures ----------------------------------------------------------- */

/* The first cause decides the exit code. */
static void job_decide(oriel_job *job, int code)
{
    if (job->code == 0)
        job->code = code;
}

static int exit_code(const siginfo_t *info)
{
    return info->si_code == CLD_EXITED ? info->si_status : ORIEL_EXIT_SIGNAL + info->si_status;
}

static void report_failure(oriel_job *job, int i, const siginfo_t *info)
{
    char what[80];
    char then[64] = "";

    if (info->si_code == CLD_EXITED)
        snprintf(what, sizeof(what), "exited with code %d", info->si_status);
    else
        snprintf(what, sizeof(what), "was killed by signal %d (%s)", info->si_status,
                 strsignal(info->si_status));
    if (job->live > 0 && job->params->grace_s > 0)
        snprintf(then, sizeof(then), "; waiting %g s for the others", job->params->grace_s);
    else if (job->live > 0)
        snprintf(then, sizeof(then), "; stopping the others");
    oriel_job_say(job, "process %d (pid %d) %s%s", i, (int)info->si_pid, what, then);
}

/* A process that fails may be held up, for others' sake, until those that fail by it are gone. */
static int first_to_fail(const oriel_job *job)
{
    oriel_store store = ORIEL_STORE_INIT;
    char text[16] = "";
    size_t len;
    int first = -1;

    if (oriel_store_connect(job->store, job->secret, 0.5, &store) != ORIEL_OK)
        return -1;
    if (store.get(store.ctx, ORIEL_STORE_FIRST, 0, text, sizeof(text) - 1, &len) == ORIEL_OK)
        first = atoi(text);
    oriel_store_disconnect(&store);
    return first >= 0 && first < job->params->count ? first : -1;
}

static void failure_decide(oriel_job *job, int i, const siginfo_t *info)
{
    report_failure(job, i, info);
    job_decide(job, exit_code(info));
}

/* One that was taken for a follower is the cause, or all there is to tell. */
static void held_decide(oriel_job *job)
{
    if (job->held >= 0 && job->code == 0)
        failure_decide(job, job->held, &job->held_info);
}

/* ---- phases ------------------------------------------------------------- */

static oriel_family job_family(const oriel_job *job)
{
    return (oriel_family){
        .groups = job->keeper.groups, .count = job->params->count, .keeper = job->keeper.pid};
}

/* SIGCONT too: a stopped process would not see the signal. */
static void signal_groups(oriel_job *job, int signal)
{
    for (int i = 0; i < job->params->count; i++) {
        pid_t group = job->keeper.groups[i];

        if (group > 0) {
            kill(-group, signal);
            kill(-group, SIGCONT);
        }
    }
}

static void enter(oriel_job *job, enum oriel_job_phase phase, double seconds)
{
    job->phase = phase;
    job->deadline = oriel_now() + seconds;
    job->next_sweep = 0;
}

static void enter_term(oriel_job *job)
{
    enter(job, ORIEL_JOB_TERM, term_s);
    signal_groups(job, SIGTERM);
}

static void enter_kill(oriel_job *job)
{
    oriel_family family = job_family(job);

    enter(job, ORIEL_JOB_KILL, ORIEL_JOB_KILL_S);
    signal_groups(job, SIGKILL);
    if (job->live == 0)
        oriel_strays_signal(&family, SIGKILL);
}

/* "process 3 still runs", "processes 0, 2, 5 and 7 more still run". */
static void describe_live(const oriel_job *job, char *text, size_t bytes)
{
    enum { NAMED = 8 };
    size_t used = 0;
    int named = 0;

    if (job->live == 0) {
        snprintf(text, bytes, "processes that the program left behind still run");
        return;
    }
    used += (size_t)snprintf(text, bytes, job->live == 1 ? "process" : "processes");
    for (int i = 0; i < job->params->count && named < NAMED; i++) {
        if (job->keeper.groups[i] == 0 || job->processes[i].ended)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s %d", named > 0 ? "," : "", i);
        named++;
    }
    if (job->live > named)
        used += (size_t)snprintf(text + used, bytes - used, " and %d more", job->live - named);
    snprintf(text + used, bytes - used, " still run%s", job->live == 1 ? "s" : "");
}

static void phase_ended(oriel_job *job)
{
    char who[160];

    describe_live(job, who, sizeof(who));
    held_decide(job);
    switch (job->phase) {
    case ORIEL_JOB_RUN:
        break;
    case ORIEL_JOB_GRACE:
        oriel_job_say(job, "%s after %g s; sending %s", who, job->params->grace_s,
                      job->kill_next ? "SIGKILL" : "SIGTERM");
        if (job->kill_next)
            enter_kill(job);
        else
            enter_term(job);
        break;
    case ORIEL_JOB_TERM:
        oriel_job_say(job, "%s %g s after SIGTERM; sending SIGKILL", who, term_s);
        enter_kill(job);
        break;
    case ORIEL_JOB_KILL:
        oriel_job_say(job, "%s %d s after SIGKILL; giving up", who, ORIEL_JOB_KILL_S);
        job_decide(job, ORIEL_EXIT_FAILED);
        job->over = 1;
        break;
    }
}

static void limit_passed(oriel_job *job)
{
    double limit = job->params->timeout_s;
    char who[160];

    job->limit = 0;
    job->hurry = 1;
    job_decide(job, ORIEL_EXIT_TIMEOUT);
    if (job->gone) {
        oriel_job_say(job, "the limit of %g s has passed before all output was read", limit);
        job->deadline = oriel_now() + last_output_s;
    } else if (job->phase < ORIEL_JOB_TERM) {
        describe_live(job, who, sizeof(who));
        oriel_job_say(job, "the limit of %g s has passed and %s; sending SIGTERM", limit, who);
        enter_term(job);
    }
}

/* ---- ends of processes -------------------------------------------------- */

static void process_failed(oriel_job *job, int i, const siginfo_t *info)
{
    if (job->held < 0)
        job->first = first_to_fail(job);
    if (job->first < 0 || job->processes[job->first].ended) {
        failure_decide(job, i, info);
    } else if (job->held < 0) {
        job->held = i;
        job->held_info = *info;
    }
    if (job->phase == ORIEL_JOB_RUN)
        enter(job, ORIEL_JOB_GRACE, job->params->grace_s);
}

static void process_ended(oriel_job *job, int i, const siginfo_t *info)
{
    enum { PIECES = 32 }; /* a child of it may go on writing for ever */
    oriel_process *process = &job->processes[i];

    /* Its last words come before what we say about it. */
    for (int r = 0; r < 2; r++) {
        for (int k = 0; k < PIECES; k++) {
            if (oriel_relay_read(&process->relays[r]) != ORIEL_RELAY_MORE)
                break;
        }
    }
    process->ended = 1;
    job->live--;
    if (exit_code(info) != 0 && job->code == 0)
        process_failed(job, i, info);
    else if (i == job->first)
        held_decide(job);
}

/* WNOWAIT: a process that is not collected keeps its id, so that a signal to
 * its group can never reach a stranger. */
static void processes_check(oriel_job *job)
{
    oriel_family family = job_family(job);
    int news = 0;

    for (int i = 0; i < job->params->count; i++) {
        siginfo_t info = {0};
        pid_t pid = job->keeper.groups[i];

        if (pid == 0 || job->processes[i].ended)
            continue;
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
            process_ended(job, i, &info);
            news = 1;
        }
    }
    if (!news)
        oriel_strays_signal(&family, 0); /* then it was an orphan: collect it */
}

static void job_gone(oriel_job *job)
{
    job->gone = 1;
    job->deadline = job->hurry ? oriel_now() + last_output_s : INFINITY;
}

/* The processes have ended; what they left behind gets a moment, then the same
 * signals. */
static void sweep(oriel_job *job, double now)
{
    oriel_family family = job_family(job);
    double wait = job->params->grace_s < stray_s ? job->params->grace_s : stray_s;

    if (now < job->next_sweep)
        return;
    job->next_sweep = now + sweep_every_s;
    if (oriel_strays_signal(&family, job->phase == ORIEL_JOB_KILL ? SIGKILL : 0) == 0) {
        job_gone(job);
        return;
    }
    if (job->stray_term == 0)
        job->stray_term = now + wait;
    if (job->phase < ORIEL_JOB_TERM && now >= job->stray_term) {
        enter(job, ORIEL_JOB_TERM, term_s);
        oriel_strays_signal(&family, SIGTERM);
    }
}

/* ---- signals ------------------------------------------------------------ */

static const char *signal_name(int signal)
{
    switch (signal) {
    case SIGINT:
        return "SIGINT";
    case SIGTERM:
        return "SIGTERM";
    case SIGHUP:
        return "SIGHUP";
    default:
        return "SIGQUIT";
    }
}

static void stop_requested(oriel_job *job, int signal)
{
    job->hurry = 1;
    job_decide(job, ORIEL_EXIT_SIGNAL + signal);
    if (job->gone) {
        job->over = 1;
        return;
    }
    job->interrupts += signal == SIGINT;
    if (job->interrupts > 1 && signal == SIGINT) {
        oriel_job_say(job, "interrupted again; sending SIGKILL");
        enter_kill(job);
        return;
    }
    signal_groups(job, signal);
    if (job->phase == ORIEL_JOB_RUN) {
        job->kill_next = 1;
        enter(job, ORIEL_JOB_GRACE, job->params->grace_s);
        oriel_job_say(job, "%s is passed on to all processes; waiting %g s for them%s",
                      signal_name(signal), job->params->grace_s,
                      signal == SIGINT ? " (Ctrl-C again kills them)" : "");
    }
}

static void signals_read(oriel_job *job)
{
    struct signalfd_siginfo info;

    while (read(job->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            processes_check(job);
        else
            stop_requested(job, (int)info.ssi_signo);
    }
}

/* ---- output ------------------------------------------------------------- */

/* Nobody reads our output any more: closing the pipes tells the processes so,
 * just as if they had written there themselves. */
static void sink_broken(oriel_job *job, int which)
{
    int error = job->sinks[which].error;

    for (int i = 0; i < job->params->count; i++)
        oriel_relay_close(&job->processes[i].relays[which]);
    if (which == 0 && error != EPIPE) {
        oriel_job_say(job, "cannot write to standard output: %s", strerror(error));
        job_decide(job, ORIEL_EXIT_FAILED);
    }
}

static void sinks_turn(oriel_job *job)
{
    for (int s = 0; s < 2; s++) {
        oriel_sink *sink = &job->sinks[s];
        int was_broken = sink->error != 0;

        if (job->polls[1 + s].revents != 0)
            oriel_sink_flush(sink);
        if (sink->error != 0 && !was_broken)
            sink_broken(job, s);
    }
}

/* Once every writer is gone, an empty pipe will stay empty even if somebody
 * else still holds its other end. */
static void relays_turn(oriel_job *job)
{
    for (int i = 0; i < 2 * job->params->count; i++) {
        oriel_relay *relay = &job->processes[i / 2].relays[i % 2];

        if (relay->fd < 0 || oriel_sink_full(relay->sink))
            continue;
        if (job->gone) {
            if (oriel_relay_read(relay) == ORIEL_RELAY_EMPTY)
                oriel_relay_close(relay);
        } else if (job->polls[3 + i].revents != 0) {
            oriel_relay_read(relay);
        }
    }
}

static int output_done(const oriel_job *job)
{
    for (int i = 0; i < 2 * job->params->count; i++) {
        if (job->processes[i / 2].relays[i % 2].fd >= 0)
            return 0;
    }
    return oriel_sink_pending(&job->sinks[0]) == 0 && oriel_sink_pending(&job->sinks[1]) == 0;
}

/* ---- the loop ----------------------------------------------------------- */

static double earlier(double a, double b)
{
    return a < b ? a : b;
}

static int poll_timeout_ms(const oriel_job *job, int relay_ready)
{
    double longest_s = 3600;
    double until = INFINITY;
    double left;

    if (relay_ready)
        return 0;
    if (job->phase != ORIEL_JOB_RUN || job->gone)
        until = earlier(until, job->deadline);
    if (job->limit > 0)
        until = earlier(until, job->limit);
    if (job->live == 0 && !job->gone)
        until = earlier(until, job->next_sweep);
    left = earlier(until - oriel_now(), longest_s);
    return left > 0 ? (int)ceil(left * 1000) : 0;
}

/* Negative descriptors are ignored by poll(). */
static void wait_for_events(oriel_job *job)
{
    int count = 2 * job->params->count;
    int relay_ready = 0;

    job->polls[0] = (struct pollfd){.fd = job->signals, .events = POLLIN};
    for (int s = 0; s < 2; s++) {
        int pending = oriel_sink_pending(&job->sinks[s]) > 0;

        job->polls[1 + s] =
            (struct pollfd){.fd = pending ? job->sinks[s].fd : -1, .events = POLLOUT};
    }
    for (int i = 0; i < count; i++) {
        const oriel_relay *relay = &job->processes[i / 2].relays[i % 2];
        int open = relay->fd >= 0 && !oriel_sink_full(relay->sink);

        job->polls[3 + i] = (struct pollfd){.fd = open ? relay->fd : -1, .events = POLLIN};
        relay_ready |= job->gone && open;
    }
    if (poll(job->polls, (nfds_t)(3 + count), poll_timeout_ms(job, relay_ready)) < 0) {
        for (int i = 0; i < 3 + count; i++)
            job->polls[i].revents = 0;
    }
}

static void clocks_turn(oriel_job *job)
{
    double now = oriel_now();

    if (job->live == 0 && !job->gone)
        sweep(job, now);
    if (job->limit > 0 && now >= job->limit)
        limit_passed(job);
    if (job->gone)
        job->over |= output_done(job) || now >= job->deadline;
    else if (job->phase != ORIEL_JOB_RUN && now >= job->deadline)
        phase_ended(job);
}

static void report_logs(oriel_job *job)
{
    for (int i = 0; i < job->params->count; i++) {
        if (job->processes[i].log.error == 0)
            continue;
        fprintf(stderr, "oriel run: the log of process %d in %s is not complete: %s\n", i,
                job->params->log_dir, strerror(job->processes[i].log.error));
        job_decide(job, ORIEL_EXIT_FAILED);
    }
}

int oriel_job_supervise(oriel_job *job)
{
    while (!job->over) {
        wait_for_events(job);
        sinks_turn(job);
        relays_turn(job);
        if (job->polls[0].revents != 0)
            signals_read(job);
        clocks_turn(job);
    }
    report_logs(job);
    return job->code;
}
