#include "core/start/rendezvous.h"

#include "base/config.h"
#include "base/sys.h"
#include "core/start/launcher.h"

static oriel_status connect_in_time(oriel_meeting *meeting, const char *address, const char *secret)
{
    double left = meeting->deadline - oriel_now();

    return oriel_store_connect(address, secret, left > 0.0 ? left : 0.0, &meeting->own);
}

/* Process 0 serves the store unless a launcher (or an earlier call) already
 * does: then the address is taken, and it connects like the others. */
static oriel_status open_given_store(oriel_meeting *meeting, const char *address,
                                     const char *secret)
{
    if (meeting->process == 0 && meeting->server == NULL) {
        oriel_status st = oriel_store_server_create(address, secret, &meeting->server);

        if (st == ORIEL_ERR_INVALID || st == ORIEL_ERR_AUTH)
            return st;
        /* Another try, for the case that the address is free. */
        if (st != ORIEL_OK)
            oriel_store_server_create(address, secret, &meeting->server);
    }
    return connect_in_time(meeting, address, secret);
}

/* The store of a job of mpirun or srun, held for each comm anew: nobody but process 0
 * of this very job can rightly hold it. */
static oriel_status open_job_store(oriel_meeting *meeting, const oriel_launcher *launcher,
                                   const char *secret)
{
    char address[ORIEL_ADDRESS_TEXT];
    oriel_status st = oriel_launcher_store(launcher, meeting->job, address);

    if (secret[0] == '\0')
        secret = launcher->secret;
    if (st == ORIEL_OK && meeting->process == 0 && meeting->server == NULL) {
        st = oriel_store_server_create(address, secret, &meeting->server);
        if (st != ORIEL_OK)
            return oriel_fail_in(st,
                                 "process 0 of %s cannot hold the store of its job (is a process "
                                 "of an earlier run left, or was it started twice?)",
                                 launcher->name);
    }
    return st == ORIEL_OK ? connect_in_time(meeting, address, secret) : st;
}

oriel_status oriel_rendezvous_open(oriel_meeting *meeting, const oriel_comm_params *params)
{
    const char *address = params->store ? params->store : oriel_config_string(ORIEL_OPT_STORE);
    const char *secret = params->secret ? params->secret : oriel_config_string(ORIEL_OPT_SECRET);
    oriel_launcher launcher;
    oriel_status st;

    if (address[0] != '\0')
        return open_given_store(meeting, address, secret);
    st = oriel_launcher_find(&launcher);
    if (st != ORIEL_OK)
        return st;
    /* A caller may call its processes what it likes, but then not meet by job. */
    if (launcher.name != NULL && launcher.process_id == meeting->process &&
        launcher.num_processes == meeting->num_processes)
        return open_job_store(meeting, &launcher, secret);
    return oriel_fail(ORIEL_ERR_INVALID,
                      "num_processes is %d but there is no store to meet in: start with `oriel "
                      "run`, mpirun or srun, or set ORIEL_STORE (and ORIEL_SECRET)",
                      meeting->num_processes);
}
