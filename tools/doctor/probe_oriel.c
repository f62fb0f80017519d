/* What oriel itself would choose here: options, fabric, store. */
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/sys.h"
#include "core/start/launcher.h"
#include "core/store/store.h"
#include "doctor/doctor.h"
#include "oriel/oriel.h"
#include "tool.h"

static void probe_options(oriel_report *report)
{
    oriel_option option;
    int count = 0;
    int set = 0;

    if (oriel_config_load() != ORIEL_OK) {
        oriel_report_add(report, "options", ORIEL_FINDING_ERROR, "oriel refuses to start with it",
                         "correct or unset the variable; `oriel info` lists all options", "%s",
                         oriel_last_error());
        return;
    }
    while (oriel_option_get(count, &option) == ORIEL_OK) {
        set += strcmp(option.source, "environment") == 0;
        count++;
    }
    oriel_report_add(report, "options", ORIEL_FINDING_OK, "`oriel info` lists them", "",
                     "%d, of which %d come from the environment", count, set);
}

/* A world of one rank with a window, made as any program makes it. */
static oriel_status fabric_try(void)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    oriel_window *window = NULL;
    oriel_comm *comm = NULL;
    oriel_status st;

    params.process_id = 0;
    params.num_processes = 1;
    st = oriel_comm_create(&params, &comm);
    if (st != ORIEL_OK)
        return st;
    st = oriel_window_create(oriel_comm_world(comm), 4096, &window);
    oriel_window_free(window);
    if (st != ORIEL_OK) {
        oriel_comm_abandon(comm);
        return st;
    }
    return oriel_comm_destroy(comm);
}

static void probe_fabric(oriel_report *report)
{
    if (fabric_try() == ORIEL_OK)
        oriel_report_add(
            report, "fabric", ORIEL_FINDING_OK,
            "for ranks that are CPUs: those of one machine load and store each other's "
            "memory",
            "", "host is chosen; made a world of one rank and a window");
    else
        oriel_report_add(report, "fabric", ORIEL_FINDING_ERROR,
                         "without a fabric no rank can reach another",
                         "see the findings above: the system refuses what the host fabric needs",
                         "host does not work: %s", oriel_last_error());
}

/* ---- store -------------------------------------------------------------- */

static const char unix_why[] =
    "only processes of the same user can connect, and each has to prove that it knows the job's "
    "secret; it protects against other users, not against root or your own programs";

static oriel_status store_try(double *ms_p)
{
    static const char secret[] = "oriel doctor";
    const double wait_s = 5;
    double start = oriel_now();
    oriel_store store = ORIEL_STORE_INIT;
    oriel_store_server *server;
    char value[8];
    size_t len;
    oriel_status st;

    st = oriel_store_server_create(NULL, secret, &server);
    if (st != ORIEL_OK)
        return st;
    st = oriel_store_connect(oriel_store_server_address(server), secret, wait_s, &store);
    if (st == ORIEL_OK) {
        st = store.set(store.ctx, "doctor", "here", 4);
        if (st == ORIEL_OK)
            st = store.get(store.ctx, "doctor", wait_s, value, sizeof(value), &len);
        oriel_store_disconnect(&store);
    }
    oriel_store_server_destroy(server, 0);
    *ms_p = (oriel_now() - start) * 1e3;
    return st;
}

static void probe_own_store(oriel_report *report)
{
    double ms;

    if (store_try(&ms) == ORIEL_OK)
        oriel_report_add(report, "store of oriel run", ORIEL_FINDING_OK, unix_why, "",
                         "an abstract Unix socket; made, proved the secret, set and got a key in "
                         "%.1f ms",
                         ms);
    else
        oriel_report_add(report, "store of oriel run", ORIEL_FINDING_ERROR,
                         "processes started by `oriel run` would not find each other",
                         "allow Unix sockets in the sandbox", "%s", oriel_last_error());
}

static void probe_launcher(oriel_report *report)
{
    char text[320];

    if (oriel_launcher_describe(text, sizeof(text)) == 0)
        oriel_report_add(report, "launcher", ORIEL_FINDING_OK,
                         "what started this command; a program started in its place would be "
                         "this process of the job",
                         "", "%s", text);
    else
        oriel_report_add(report, "launcher", ORIEL_FINDING_ERROR,
                         "a process that goes by these variables is refused",
                         "start it with its launcher again, or set ORIEL_PROCESS_ID and "
                         "ORIEL_NUM_PROCESSES",
                         "%s", text);
}

/* The store of a job of mpirun or srun; 0 where there is no such job. */
static int probe_job_store(oriel_report *report)
{
    oriel_launcher launcher;
    char address[ORIEL_ADDRESS_TEXT];

    if (oriel_launcher_find(&launcher) != ORIEL_OK || launcher.num_processes == 1)
        return 0;
    if (oriel_launcher_store(&launcher, "", address) != ORIEL_OK)
        oriel_report_add(report, "store", ORIEL_FINDING_ERROR,
                         "the processes of this job would not find each other",
                         "set the two variables in the environment of every process", "%s",
                         oriel_last_error());
    else if (launcher.secret[0] != '\0')
        oriel_report_add(report, "store", ORIEL_FINDING_OK, unix_why, "",
                         "an abstract Unix socket named after this job of %s, held by process 0; "
                         "the secret is the key that %s gave the job",
                         launcher.name, launcher.name);
    else
        oriel_report_add(report, "store", ORIEL_FINDING_OK,
                         "both ends check that the other is of the same user; it protects against "
                         "other users, not against root or your own programs",
                         "",
                         "an abstract Unix socket named after this job of %s, held by process 0",
                         launcher.name);
    return 1;
}

/* What ORIEL_STORE names; inside a job that is where its processes meet. */
static void probe_given_store(oriel_report *report)
{
    const char *address = oriel_config_string(ORIEL_OPT_STORE);
    int secret = oriel_config_string(ORIEL_OPT_SECRET)[0] != '\0';
    int local = strncmp(address, "unix:", 5) == 0;

    if (address[0] == '\0' && probe_job_store(report))
        return;
    if (address[0] == '\0')
        oriel_report_add(
            report, "store", ORIEL_FINDING_OK,
            "`oriel run`, mpirun and srun bring one for each job; under jax.distributed its "
            "coordinator is used instead and decides who may connect",
            "", "ORIEL_STORE is not set");
    else if (local && secret)
        oriel_report_add(report, "store", ORIEL_FINDING_OK, unix_why, "", "%s, with a secret",
                         address);
    else if (local)
        oriel_report_add(report, "store", ORIEL_FINDING_WARN,
                         "only the user id is checked: any program of yours can join the job",
                         "set ORIEL_SECRET to the same random text in every process",
                         "%s, without a secret", address);
    else if (secret)
        oriel_report_add(report, "store", ORIEL_FINDING_WARN,
                         "every connection has to prove that it knows the secret, but what passes "
                         "is not encrypted: it protects against joining, not against listening",
                         "use it on a network you trust; on one machine use `oriel run`",
                         "%s (TCP), with a secret", address);
    else
        oriel_report_add(report, "store", ORIEL_FINDING_ERROR,
                         "a TCP store without a secret is refused: anybody could join the job",
                         "set ORIEL_SECRET to the same random text in every process",
                         "%s (TCP), without a secret", address);
}

void oriel_probe_oriel(oriel_report *report)
{
    probe_options(report);
    probe_fabric(report);
    probe_own_store(report);
    probe_launcher(report);
    probe_given_store(report);
}
