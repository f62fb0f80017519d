#include "core/start/meeting.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/sys.h"
#include "base/hash.h"
#include "core/start/launcher.h"

enum { TRIES = 2 };

/* The lead tells who is missing; the others wait a little longer than it does,
 * to hear that. */
#define FOLLOWER_MARGIN_S 5.0

/* Whether another try, on a connection made anew, may help. Without the store a
 * process could not even say that it failed. */
static int is_broken(oriel_status st)
{
    return st == ORIEL_ERR_PEER || st == ORIEL_ERR_SYSTEM || st == ORIEL_ERR_NO_RESOURCE;
}

oriel_status oriel_meeting_get(const oriel_meeting *meeting, const char *what, int process,
                               void *value, size_t len)
{
    const oriel_store *kv = meeting->kv;
    char key[160];
    size_t got = 0;
    oriel_status st = ORIEL_ERR_PEER;

    snprintf(key, sizeof key, "%s/%s/%d", meeting->prefix, what, process);
    for (int i = 0; i < TRIES && is_broken(st); i++) {
        double left = meeting->deadline - oriel_now();
        st = kv->get(kv->ctx, key, left > 0.0 ? left : 0.0, value, len, &got);
    }
    if (st == ORIEL_ERR_TIMEOUT)
        return oriel_fail(st, "process %d did not say %s within %.0f s (ORIEL_INIT_TIMEOUT)",
                          process, what, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    if (st == ORIEL_OK && got != len)
        return oriel_fail(ORIEL_ERR_MISMATCH,
                          "key %s holds %zu bytes instead of %zu: is another version of oriel in "
                          "this job?",
                          key, got, len);
    return st;
}

oriel_status oriel_meeting_set(const oriel_meeting *meeting, const char *what, int process,
                               const void *value, size_t len)
{
    const oriel_store *kv = meeting->kv;
    char key[160];
    oriel_status st = ORIEL_ERR_PEER;

    snprintf(key, sizeof key, "%s/%s/%d", meeting->prefix, what, process);
    for (int i = 0; i < TRIES && is_broken(st); i++)
        st = kv->set(kv->ctx, key, value, len);
    return st;
}

/* Process 0 serves the store unless a launcher (or an earlier call) already
 * does: then the address is taken, and it connects like the others. */
static oriel_status open_given_store(const oriel_comm *comm, const char *address,
                                     const char *secret, oriel_store_server **server_p,
                                     oriel_store *kv_p)
{
    for (int i = 0; i < TRIES && comm->process == 0 && *server_p == NULL; i++) {
        oriel_status st = oriel_store_server_create(address, secret, server_p);
        if (st != ORIEL_OK && !is_broken(st))
            return st;
    }
    return oriel_store_connect(address, secret, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT), kv_p);
}

/* The store of a job of mpirun or srun, one for each comm: nobody but process 0
 * of this very job can rightly hold it. */
static oriel_status open_job_store(const oriel_comm *comm, const oriel_launcher *launcher,
                                   const oriel_meeting *meeting, const char *secret,
                                   oriel_store_server **server_p, oriel_store *kv_p)
{
    char address[ORIEL_ADDRESS_TEXT];
    oriel_status st = oriel_launcher_store(launcher, meeting->prefix, address);

    if (secret[0] == '\0')
        secret = launcher->secret;
    if (st == ORIEL_OK && comm->process == 0 && *server_p == NULL) {
        st = oriel_store_server_create(address, secret, server_p);
        if (st != ORIEL_OK)
            return oriel_fail_in(st,
                                 "process 0 of %s cannot hold the store of its job (is a process "
                                 "of an earlier run left, or was it started twice?)",
                                 launcher->name);
    }
    if (st != ORIEL_OK)
        return st;
    return oriel_store_connect(address, secret, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT), kv_p);
}

static oriel_status open_store(const oriel_comm *comm, const oriel_comm_params *params,
                               const oriel_meeting *meeting, oriel_store_server **server_p,
                               oriel_store *kv_p)
{
    const char *address = params->store ? params->store : oriel_config_string(ORIEL_OPT_STORE);
    const char *secret = params->secret ? params->secret : oriel_config_string(ORIEL_OPT_SECRET);
    oriel_launcher launcher;
    oriel_status st;

    if (address[0] != '\0')
        return open_given_store(comm, address, secret, server_p, kv_p);
    st = oriel_launcher_find(&launcher);
    if (st != ORIEL_OK)
        return st;
    /* A caller may call its processes what it likes, but then not meet by job. */
    if (launcher.name != NULL && launcher.process_id == comm->process &&
        launcher.num_processes == comm->num_processes)
        return open_job_store(comm, &launcher, meeting, secret, server_p, kv_p);
    return oriel_fail(ORIEL_ERR_INVALID,
                      "num_processes is %d but there is no store to meet in: start with `oriel "
                      "run`, mpirun or srun, or set ORIEL_STORE (and ORIEL_SECRET)",
                      comm->num_processes);
}

/* A job may make several comms one after the other; its store remembers the keys
 * of all. Every process counts its own: comms are made in one order. */
static unsigned count_meetings(const char *job)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        uint64_t job;
        unsigned count;
    } seen[256];
    uint64_t hash = oriel_hash(job, strlen(job), 1) | 1;
    unsigned count = 0;

    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < 256; i++) {
        unsigned at = (unsigned)(hash + i) % 256;
        if (seen[at].job == 0 || seen[at].job == hash) {
            seen[at].job = hash;
            count = seen[at].count++;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return count;
}

/* Names the meeting that this comm is made in, and its end. */
oriel_status oriel_meeting_plan(oriel_meeting *meeting, const oriel_comm *comm,
                                const oriel_comm_params *params)
{
    const char *job = params->job ? params->job : "oriel";

    if (strlen(job) > 100)
        return oriel_fail(ORIEL_ERR_INVALID, "job has %zu characters; at most 100", strlen(job));
    *meeting = (oriel_meeting){.own = ORIEL_STORE_INIT};
    snprintf(meeting->prefix, sizeof meeting->prefix, "%s/%u", job,
             comm->num_processes > 1 ? count_meetings(job) : 0);
    meeting->deadline = oriel_now() + oriel_config_number(ORIEL_OPT_INIT_TIMEOUT) +
                        (comm->process > 0 ? FOLLOWER_MARGIN_S : 0.0);
    return ORIEL_OK;
}

oriel_status oriel_meeting_open(oriel_meeting *meeting, const oriel_comm *comm,
                                const oriel_comm_params *params)
{
    oriel_status st = ORIEL_ERR_SYSTEM;

    meeting->kv = params->kv != NULL ? params->kv : &meeting->own;
    for (int i = 0; i < TRIES && params->kv == NULL && is_broken(st); i++)
        st = open_store(comm, params, meeting, &meeting->server, &meeting->own);
    return params->kv != NULL ? ORIEL_OK : st;
}

void oriel_meeting_close(oriel_meeting *meeting)
{
    if (meeting->kv == &meeting->own)
        oriel_store_disconnect(&meeting->own);
    /* The others disconnect once they have read the outcome. */
    oriel_store_server_destroy(meeting->server, 2.0);
}
