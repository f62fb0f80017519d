#include "core/start/meeting.h"

#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/interrupt.h"
#include "base/sys.h"
#include "core/start/rendezvous.h"

enum { TRIES = 2, UNKNOWN = -1, MOST_MEETINGS = 1 << 24 };

/* The lead names the missing process; the others wait a little longer than it does,
 * to hear that. */
#define FOLLOWER_MARGIN_S 5.0
/* How long a process that has only to tell its failure looks for the store of one that may never
 * come. */
#define TELL_S 10.0
/* A process's connections are closed a moment before the system tells of its end. */
#define END_S 0.5
/* How soon a wait looks at the outcome and at the others' lives for the first time, and how seldom
 * at last: a process that fails wakes those that wait for it, so that a look finds what a third one
 * has said. */
#define FIRST_LOOK_S 0.1
#define LAST_LOOK_S  0.4
/* How long process 0, where it holds the store, keeps a failure there for those who are on their
 * way. */
#define LATE_S 5.0

/* The length of a value that stands for none. */
enum { NEVER_BYTES = 1 };

/* How a meeting ended. */
struct outcome {
    int32_t status;       /* oriel_status */
    int32_t teller;       /* the process that says so ... */
    int32_t culprit;      /* ... and the one it says it of */
    char text[HEAP_TEXT]; /* the sentence; "" with ORIEL_OK */
};

/* ---- keys -------------------------------------------------------------------------------- */

/* Whether another try, on a connection made anew, may help. Without the store a
 * process could not even say that it failed. */
static int is_broken(oriel_status st)
{
    return st == ORIEL_ERR_PEER || st == ORIEL_ERR_SYSTEM || st == ORIEL_ERR_NO_RESOURCE;
}

static void key_of(const oriel_meeting *m, unsigned number, const char *what, int process,
                   char key_p[160])
{
    snprintf(key_p, 160, "%s/%u/%s/%d", m->job, number, what, process);
}

/* ORIEL_ERR_TIMEOUT: it is not there. ORIEL_IN_PROGRESS: it will not be, as the outcome says. */
static oriel_status fetch(const oriel_meeting *m, unsigned number, const char *what, int process,
                          double seconds, void *value, size_t len)
{
    char key[160];
    size_t got = 0;
    oriel_status st = ORIEL_ERR_PEER;

    key_of(m, number, what, process, key);
    for (int i = 0; i < TRIES && is_broken(st) && !(i > 0 && oriel_interrupted()); i++)
        st = m->kv->get(m->kv->ctx, key, seconds, value, len, &got);
    if (st == ORIEL_OK && got == NEVER_BYTES && len > NEVER_BYTES)
        return ORIEL_IN_PROGRESS;
    if (st == ORIEL_OK && got != len)
        return oriel_fail(ORIEL_ERR_MISMATCH,
                          "key %s holds %zu bytes instead of %zu: is another version of oriel in "
                          "this job?",
                          key, got, len);
    return st;
}

static oriel_status put(const oriel_meeting *m, const char *what, int process, const void *value,
                        size_t len)
{
    char key[160];
    oriel_status st = ORIEL_ERR_PEER;

    key_of(m, m->number, what, process, key);
    for (int i = 0; i < TRIES && is_broken(st); i++)
        st = m->kv->set(m->kv->ctx, key, value, len);
    return st;
}

oriel_status oriel_meeting_set(const oriel_meeting *m, const char *what, int process,
                               const void *value, size_t len)
{
    return put(m, what, process, value, len);
}

/* ---- the outcome -------------------------------------------------------------------------- */

static oriel_status fetch_outcome(const oriel_meeting *m, unsigned number, struct outcome *out_p)
{
    return fetch(m, number, "outcome", 0, 0.0, out_p, sizeof *out_p);
}

/* Fails with what another process has said: of itself, of a third, or of this one, which is late.
 */
static oriel_status hear(oriel_meeting *m, const struct outcome *outcome)
{
    oriel_status st =
        oriel_fail((oriel_status)outcome->status, "%.*s", HEAP_TEXT - 1, outcome->text);

    m->heard = 1;
    m->culprit = outcome->culprit;
    if (outcome->teller == m->process)
        return st;
    if (outcome->culprit == m->process && st == ORIEL_ERR_TIMEOUT)
        return oriel_fail_in(st, "process %d has given up", outcome->teller);
    return outcome->culprit == outcome->teller ? oriel_fail_in(st, "process %d", outcome->teller)
                                               : st;
}

/* The first to say the outcome decides. Returns what stands. */
static oriel_status say_outcome(oriel_meeting *m, const struct outcome *mine)
{
    struct outcome stands;
    oriel_status said = put(m, "outcome", 0, mine, sizeof *mine);

    if (said == ORIEL_OK)
        return (oriel_status)mine->status;
    if (fetch_outcome(m, m->number, &stands) != ORIEL_OK)
        return said;
    return stands.status == ORIEL_OK ? ORIEL_OK : hear(m, &stands);
}

oriel_status oriel_meeting_succeed(oriel_meeting *m)
{
    return say_outcome(m, &(struct outcome){.status = ORIEL_OK, .teller = m->process});
}

/* What another did not do, it may not have done because it has ended. */
static oriel_status blame(oriel_meeting *m, oriel_status st)
{
    struct outcome mine = {.status = (int32_t)st};
    int ended;

    if (st != ORIEL_ERR_PEER || m->culprit != m->process)
        return st;
    snprintf(mine.text, sizeof mine.text, "%s", oriel_last_error());
    ended = oriel_interrupted() ? -1 : oriel_lives_ended(&m->lives, END_S);
    if (ended < 0)
        return oriel_fail(st, "%s", mine.text);
    m->culprit = ended;
    return oriel_fail(ORIEL_ERR_PEER, "process %d (pid %d) is gone", ended,
                      (int)m->lives.of[ended].pid);
}

/* A process that comes when process 0 and its store are gone hears nothing. */
static void stay_for_late(const oriel_meeting *m)
{
    double until = oriel_now() + LATE_S;
    oriel_hello hello;

    for (int p = 1; p < m->num_processes && m->server != NULL && !oriel_interrupted(); p++) {
        double left = until - oriel_now();

        fetch(m, m->number, "hello", p, left > 0.0 ? left : 0.0, &hello, sizeof hello);
    }
}

/* Those who wait for what this process says next need not find out by their looks. */
static void wake(const oriel_meeting *m)
{
    put(m, m->process == 0 ? "plan" : "joined", m->process, "", NEVER_BYTES);
}

static oriel_status tell(oriel_meeting *m, oriel_status st)
{
    struct outcome mine = {.status = (int32_t)st, .teller = m->process, .culprit = m->culprit};
    oriel_status stands;

    snprintf(mine.text, sizeof mine.text, "%s", oriel_last_error());
    stands = say_outcome(m, &mine);
    if (m->heard)
        return stands;
    wake(m);
    stay_for_late(m);
    return oriel_fail(st, "%s", mine.text);
}

oriel_status oriel_meeting_fail(oriel_meeting *m, oriel_status st)
{
    char text[HEAP_TEXT];

    if (!m->heard)
        st = blame(m, st);
    if (m->kv == NULL || m->number == (unsigned)UNKNOWN || m->stranger)
        return st;
    if (!m->heard)
        st = tell(m, st);
    if (!m->heard || m->process > 0)
        return st;
    snprintf(text, sizeof text, "%s", oriel_last_error());
    wake(m);
    return oriel_fail(st, "%s", text);
}

/* ---- waiting ------------------------------------------------------------------------------ */

/* Whatever else ends the wait for a key. */
static oriel_status look_around(oriel_meeting *m, const char *what, int process, void *value,
                                size_t len)
{
    int ended = oriel_lives_ended(&m->lives, 0.0);
    struct outcome outcome = {.status = ORIEL_OK};
    oriel_status st;

    if (oriel_interrupted())
        return oriel_interrupt_fail();
    st = fetch_outcome(m, m->number, &outcome);
    if (st != ORIEL_OK && st != ORIEL_ERR_TIMEOUT)
        return st;
    if (st == ORIEL_OK && outcome.status != ORIEL_OK)
        return hear(m, &outcome);
    if (ended < 0)
        return ORIEL_IN_PROGRESS;
    st = fetch(m, m->number, what, process, 0.0, value, len); /* its last word */
    if (st != ORIEL_ERR_TIMEOUT)
        return st;
    m->culprit = ended;
    return oriel_fail(ORIEL_ERR_PEER, "process %d (pid %d) is gone", ended,
                      (int)m->lives.of[ended].pid);
}

/* A caller's store need not wait at all. */
static oriel_status fetch_patiently(const oriel_meeting *m, const char *what, int process,
                                    double seconds, void *value, size_t len)
{
    double until = oriel_now() + seconds;
    oriel_status st = fetch(m, m->number, what, process, seconds, value, len);
    double left = until - oriel_now();

    if (st == ORIEL_ERR_TIMEOUT && left > 0.0)
        oriel_sys_now->poll(NULL, 0, (int)(left * 1e3));
    return st;
}

oriel_status oriel_meeting_try(oriel_meeting *m, const char *what, int process, void *value,
                               size_t len)
{
    double left = m->deadline - oriel_now();
    oriel_status st = fetch_patiently(m, what, process,
                                      left <= 0.0       ? 0.0
                                      : left < m->pause ? left
                                                        : m->pause,
                                      value, len);

    if (st == ORIEL_ERR_TIMEOUT || st == ORIEL_IN_PROGRESS)
        st = look_around(m, what, process, value, len);
    if (st != ORIEL_IN_PROGRESS) {
        m->pause = FIRST_LOOK_S;
        return st;
    }
    m->pause = m->pause * 2 < LAST_LOOK_S ? m->pause * 2 : LAST_LOOK_S;
    if (left > 0.0)
        return st;
    m->culprit = process;
    return oriel_fail(ORIEL_ERR_TIMEOUT,
                      "process %d did not say %s within %.0f s (ORIEL_INIT_TIMEOUT)", process, what,
                      oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
}

oriel_status oriel_meeting_get(oriel_meeting *m, const char *what, int process, void *value,
                               size_t len)
{
    oriel_status st;

    do
        st = oriel_meeting_try(m, what, process, value, len);
    while (st == ORIEL_IN_PROGRESS);
    return st;
}

oriel_status oriel_meeting_end(oriel_meeting *m)
{
    struct outcome outcome;
    oriel_status st = oriel_meeting_get(m, "outcome", 0, &outcome, sizeof outcome);

    return st == ORIEL_OK && outcome.status != ORIEL_OK ? hear(m, &outcome) : st;
}

/* ---- which meeting ------------------------------------------------------------------------ */

/* A caller's store that finds whatever it is asked for. */
static oriel_status no_end(const oriel_meeting *m)
{
    return oriel_fail(ORIEL_ERR_MISMATCH, "the store has more than %d meetings of job %.100s",
                      MOST_MEETINGS, m->job);
}

/* Of the job, so far: process 0 says hello in one after the other. */
static oriel_status count(const oriel_meeting *m, unsigned *count_p)
{
    unsigned there = 0; /* meetings that are known to have begun */
    unsigned none = 0;  /* one that has not; 0: unknown */
    oriel_hello hello;

    while (none == 0 || there < none - 1) {
        unsigned at = none == 0 ? 2 * there : there + (none - 1 - there) / 2;
        oriel_status st = fetch(m, at, "hello", 0, 0.0, &hello, sizeof hello);

        if (st == ORIEL_OK)
            there = at + 1;
        else if (st == ORIEL_ERR_TIMEOUT)
            none = at + 1;
        else
            return st;
        if (there > MOST_MEETINGS)
            return no_end(m);
    }
    *count_p = there;
    return ORIEL_OK;
}

/* Whether this process, or one before it with its number, has come to a meeting: ORIEL_OK. */
static oriel_status came(const oriel_meeting *m, unsigned number)
{
    oriel_hello hello;

    return fetch(m, number, "hello", m->process, 0.0, &hello, sizeof hello);
}

enum { IS_OVER, IS_OPEN, IS_NEWS };

/* What a meeting that has begun is to this process. One that failed is news, so that the process
 * hears of it like the others; unless it came there, or it was missing there. */
static oriel_status look_back(const oriel_meeting *m, unsigned number, int *what_p)
{
    struct outcome outcome;
    oriel_status st = came(m, number);

    *what_p = IS_OVER;
    if (st != ORIEL_ERR_TIMEOUT)
        return st;
    st = fetch_outcome(m, number, &outcome);
    if (st == ORIEL_ERR_TIMEOUT)
        *what_p = IS_OPEN;
    if (st == ORIEL_OK && outcome.status != ORIEL_OK && outcome.culprit != m->process)
        *what_p = IS_NEWS;
    return st == ORIEL_ERR_TIMEOUT ? ORIEL_OK : st;
}

/* The last meeting that has begun, or the next; or the one before the last, where that is news: the
 * others have begun anew already. */
static oriel_status find_mine(const oriel_meeting *m, unsigned count, unsigned *number_p)
{
    int last = IS_OVER;
    int before = IS_OVER;
    oriel_status st = count > 0 ? look_back(m, count - 1, &last) : ORIEL_OK;

    if (st == ORIEL_OK && last == IS_OPEN && count > 1)
        st = look_back(m, count - 2, &before);
    if (st != ORIEL_OK)
        return st;
    *number_p = before == IS_NEWS ? count - 2 : last != IS_OVER ? count - 1 : count;
    /* Where process 0 has not been yet. */
    while (*number_p >= count && (st = came(m, *number_p)) == ORIEL_OK) {
        if (++*number_p > MOST_MEETINGS)
            return no_end(m);
    }
    return st == ORIEL_ERR_TIMEOUT ? ORIEL_OK : st;
}

/* Process 0 finds the last meeting without an end: it ends it in the name of the process 0 that
 * began it, unless that one lives. */
static oriel_status end_last(oriel_meeting *m, unsigned number)
{
    struct outcome outcome;
    oriel_hello hello;
    oriel_status st = fetch_outcome(m, number, &outcome);

    if (st == ORIEL_ERR_TIMEOUT)
        st = fetch(m, number, "hello", 0, 0.0, &hello, sizeof hello);
    else
        return st;
    if (st != ORIEL_OK)
        return st;
    if (oriel_lives_goes_on(&m->lives, &hello.life)) {
        m->stranger = 1;
        return oriel_fail(ORIEL_ERR_MISMATCH,
                          "process 0 (pid %d) is in a meeting already: was it started twice?",
                          (int)hello.life.pid);
    }
    m->number = number;
    outcome = (struct outcome){.status = ORIEL_ERR_PEER};
    snprintf(outcome.text, sizeof outcome.text, "process 0 (pid %d) is gone", (int)hello.life.pid);
    put(m, "outcome", 0, &outcome, sizeof outcome);
    return ORIEL_OK;
}

static oriel_status find_number(oriel_meeting *m)
{
    unsigned number = 0;
    oriel_status st = count(m, &number);

    if (st == ORIEL_OK && m->process == 0 && number > 0)
        st = end_last(m, number - 1);
    if (st == ORIEL_OK && m->process > 0)
        st = find_mine(m, number, &number);
    if (st == ORIEL_OK)
        m->number = number;
    return st;
}

static oriel_status say_hello(oriel_meeting *m, const oriel_hello *hello)
{
    oriel_status st = put(m, "hello", m->process, hello, sizeof *hello);

    if (st != ORIEL_ERR_MISMATCH)
        return st;
    m->stranger = 1;
    return oriel_fail(st, "process %d is in this meeting already: was it started twice?",
                      m->process);
}

/* ---- coming and going ----------------------------------------------------------------------- */

static oriel_status plan(oriel_meeting *m, const oriel_comm *comm, const oriel_comm_params *params,
                         oriel_status mine)
{
    double limit = oriel_config_number(ORIEL_OPT_INIT_TIMEOUT);

    *m = (oriel_meeting){.own = ORIEL_STORE_INIT,
                         .job = params->job ? params->job : "oriel",
                         .number = (unsigned)UNKNOWN,
                         .process = comm->process,
                         .num_processes = comm->num_processes,
                         .culprit = comm->process,
                         .pause = FIRST_LOOK_S};
    if (comm->process > 0)
        limit = mine == ORIEL_OK || limit < TELL_S ? limit + FOLLOWER_MARGIN_S : TELL_S;
    m->deadline = oriel_now() + limit;
    if (strlen(m->job) > 100)
        return oriel_fail(ORIEL_ERR_INVALID, "job has %zu characters; at most 100", strlen(m->job));
    return ORIEL_OK;
}

/* The process keeps quiet where it has no place: the others are none the worse for it. */
static oriel_status hear_lead(oriel_meeting *m)
{
    oriel_hello lead;
    oriel_status st = oriel_meeting_get(m, "hello", 0, &lead, sizeof lead);

    if (st != ORIEL_OK)
        return st;
    oriel_lives_follow(&m->lives, 0, &lead.life);
    if (lead.num_processes == m->num_processes)
        return ORIEL_OK;
    m->stranger = m->process >= lead.num_processes;
    return oriel_fail(ORIEL_ERR_MISMATCH, "num_processes is %d on process 0 and %d on process %d",
                      lead.num_processes, m->num_processes, m->process);
}

static oriel_status enter(oriel_meeting *m, const oriel_comm_params *params,
                          const oriel_hello *hello, oriel_status mine)
{
    oriel_status st = ORIEL_OK;

    m->number = (unsigned)UNKNOWN;

    m->kv = params->kv;
    if (params->kv == NULL) {
        st = oriel_rendezvous_open(m, params);
        m->kv = st == ORIEL_OK ? &m->own : NULL;
    }
    if (st == ORIEL_OK)
        st = find_number(m);
    if (st == ORIEL_OK)
        st = say_hello(m, hello);
    return st == ORIEL_OK && mine == ORIEL_OK && m->process > 0 ? hear_lead(m) : st;
}

oriel_status oriel_meeting_open(oriel_meeting *m, const oriel_comm *comm,
                                const oriel_comm_params *params, const oriel_hello *hello,
                                oriel_status mine)
{
    oriel_status st = plan(m, comm, params, mine);
    int tries = 0;

    if (st != ORIEL_OK)
        return st;
    oriel_lives_open(&m->lives, comm->num_processes);
    do {
        oriel_store_disconnect(&m->own);
        st = enter(m, params, hello, mine);
        /* A store that ends here was that of the meeting before. */
    } while (is_broken(st) && !m->heard && m->culprit == m->process && params->kv == NULL &&
             !oriel_interrupted() &&
             (++tries < TRIES || (m->process > 0 && oriel_now() < m->deadline)));
    return st;
}

void oriel_meeting_close(oriel_meeting *m)
{
    oriel_store_disconnect(&m->own);
    oriel_lives_close(&m->lives);
    /* The others disconnect once they have read the outcome. */
    oriel_store_server_destroy(m->server, oriel_interrupted() ? 0.2 : 2.0);
}
