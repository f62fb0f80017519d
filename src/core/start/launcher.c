#include "core/start/launcher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/hash.h"

enum { MAX_PROCESSES = 1 << 20 };

/* Slurm numbers what it runs beside srun's steps (batch script, interactive
 * shell, ...) from the top of 32 bits downwards. */
static const unsigned long first_special_step = 0xfffffff0;

/* NULL for a variable that is unset or empty. */
static const char *variable(const char *name)
{
    const char *text = getenv(name);

    return text != NULL && text[0] != '\0' ? text : NULL;
}

static const char *either(const char *first, const char *second)
{
    return variable(first) != NULL ? first : second;
}

/* A number that `launcher` must have set, from `min` to `max`. */
static oriel_status read_number(const char *launcher, const char *name, int min, int max,
                                int *number_p)
{
    const char *text = variable(name);
    char *end;
    long number;

    if (text == NULL)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "this looks like a process of %s, but %s is not set: set "
                          "ORIEL_PROCESS_ID and ORIEL_NUM_PROCESSES to go by these instead",
                          launcher, name);
    errno = 0;
    number = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < min || number > max)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s=\"%.40s\" of %s is not a whole number from %d to %d", name, text,
                          launcher, min, max);
    *number_p = (int)number;
    return ORIEL_OK;
}

static void add_to_job(oriel_launcher *launcher, const char *text)
{
    if (text != NULL)
        launcher->job = oriel_hash(text, strlen(text), launcher->job) | 1;
}

/* ---- Open MPI -------------------------------------------------------------- */

static oriel_status find_mpirun(oriel_launcher *launcher)
{
    const char *job = variable(either("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"));
    const char *secret = variable("OMPI_MCA_orte_precondition_transports");
    oriel_status st;

    launcher->name = "mpirun";
    st = read_number("mpirun", "OMPI_COMM_WORLD_SIZE", 1, MAX_PROCESSES, &launcher->num_processes);
    if (st == ORIEL_OK)
        st = read_number("mpirun", "OMPI_COMM_WORLD_RANK", 0, launcher->num_processes - 1,
                         &launcher->process_id);
    if (st == ORIEL_OK)
        st = read_number("mpirun", "OMPI_COMM_WORLD_LOCAL_SIZE", 1, launcher->num_processes,
                         &launcher->local_size);
    if (st == ORIEL_OK)
        st = read_number("mpirun", "OMPI_COMM_WORLD_LOCAL_RANK", 0, launcher->local_size - 1,
                         &launcher->local_id);
    if (st != ORIEL_OK || job == NULL)
        return st;
    /* Job ids come from a process id and so come again; the key, 128 random bits
     * that only the job's processes are given, does not. */
    add_to_job(launcher, job);
    add_to_job(launcher, secret);
    if (secret != NULL)
        snprintf(launcher->secret, sizeof launcher->secret, "%s", secret);
    return ORIEL_OK;
}

/* ---- Slurm ----------------------------------------------------------------- */

static int is_step(void)
{
    const char *step = variable("SLURM_STEP_ID");

    return variable("SLURM_PROCID") != NULL && step != NULL &&
           strtoul(step, NULL, 10) < first_special_step;
}

/* Entry `node` of a list such as "2(x3),1": so many processes there; 0: no entry. */
static int tasks_of_node(const char *list, int node)
{
    while (*list != '\0') {
        char *end;
        long tasks = strtol(list, &end, 10);
        long times = 1;

        if (strncmp(end, "(x", 2) == 0) {
            times = strtol(end + 2, &end, 10);
            end += *end == ')';
        }
        if (end == list || tasks < 1 || tasks > MAX_PROCESSES || times < 1)
            return 0;
        if (node < times)
            return (int)tasks;
        node -= (int)times;
        list = end + (*end == ',');
    }
    return 0;
}

static oriel_status count_local_tasks(oriel_launcher *launcher)
{
    const char *list = variable(either("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"));
    const char *nodes_name = either("SLURM_STEP_NUM_NODES", "SLURM_NNODES");
    int nodes = 1;
    int node = 0;
    oriel_status st = ORIEL_OK;

    if (variable(nodes_name) != NULL)
        st = read_number("srun", nodes_name, 1, MAX_PROCESSES, &nodes);
    if (st == ORIEL_OK && nodes > 1)
        st = read_number("srun", "SLURM_NODEID", 0, nodes - 1, &node);
    if (st != ORIEL_OK)
        return st;
    launcher->local_size = nodes == 1 ? launcher->num_processes : 0;
    if (nodes > 1 && list != NULL)
        launcher->local_size = tasks_of_node(list, node);
    return ORIEL_OK;
}

static oriel_status find_srun(oriel_launcher *launcher)
{
    const char *job = either("SLURM_JOB_ID", "SLURM_JOBID");
    oriel_status st;

    launcher->name = "srun";
    /* The step's own count: SLURM_NTASKS may be that of the allocation around it. */
    st = read_number("srun", either("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), 1, MAX_PROCESSES,
                     &launcher->num_processes);
    if (st == ORIEL_OK)
        st = read_number("srun", "SLURM_PROCID", 0, launcher->num_processes - 1,
                         &launcher->process_id);
    if (st == ORIEL_OK)
        st = count_local_tasks(launcher);
    if (st == ORIEL_OK)
        st = read_number("srun", "SLURM_LOCALID", 0, launcher->num_processes - 1,
                         &launcher->local_id);
    if (st != ORIEL_OK || variable(job) == NULL)
        return st;
    add_to_job(launcher, variable(job));
    add_to_job(launcher, variable("SLURM_STEP_ID"));
    add_to_job(launcher, variable("SLURM_RESTART_COUNT")); /* the same job, queued again */
    return ORIEL_OK;
}

/* ---- either ---------------------------------------------------------------- */

oriel_status oriel_launcher_find(oriel_launcher *launcher_p)
{
    int mpirun = variable("OMPI_COMM_WORLD_RANK") != NULL;
    int srun = is_step();
    oriel_launcher found = {.num_processes = 1};
    oriel_status st = ORIEL_OK;

    if (mpirun && srun) {
        const char *started = variable("SLURM_TASK_PID");

        srun = started != NULL && strtol(started, NULL, 10) == (long)getpid();
        mpirun = !srun;
    }
    if (mpirun)
        st = find_mpirun(&found);
    else if (srun)
        st = find_srun(&found);
    if (st != ORIEL_OK)
        return st;
    *launcher_p = found;
    return ORIEL_OK;
}

oriel_status oriel_launcher_store(const oriel_launcher *launcher, const char *meeting,
                                  char address_p[ORIEL_ADDRESS_TEXT])
{
    if (launcher->local_size < launcher->num_processes)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s started %d processes on several machines, which cannot meet by "
                          "themselves: set ORIEL_STORE to host:port of process 0 and ORIEL_SECRET "
                          "to one random text in all of them",
                          launcher->name, launcher->num_processes);
    if (launcher->job == 0)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "%s set no variable that names its job: set ORIEL_STORE and ORIEL_SECRET "
                          "to the same values in all %d processes",
                          launcher->name, launcher->num_processes);
    snprintf(address_p, ORIEL_ADDRESS_TEXT, "unix:@oriel-%u-%s-%016llx", (unsigned)geteuid(),
             launcher->name,
             (unsigned long long)oriel_hash(meeting, strlen(meeting), launcher->job));
    return ORIEL_OK;
}

oriel_status oriel_place_find(int *process_id_p, int *num_processes_p)
{
    int process_id = (int)oriel_config_number(ORIEL_OPT_PROCESS_ID);
    int num_processes = (int)oriel_config_number(ORIEL_OPT_NUM_PROCESSES);
    oriel_launcher launcher;

    if (process_id < 0 && num_processes < 0) {
        oriel_status st = oriel_launcher_find(&launcher);

        if (st != ORIEL_OK)
            return st;
        process_id = launcher.process_id;
        num_processes = launcher.num_processes;
    }
    if (process_id < 0 && num_processes > 1)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "ORIEL_NUM_PROCESSES is %d, but ORIEL_PROCESS_ID is not set",
                          num_processes);
    if (process_id > 0 && num_processes < 0)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "ORIEL_PROCESS_ID is %d, but ORIEL_NUM_PROCESSES is not set", process_id);
    if (num_processes < 0)
        num_processes = 1;
    *process_id_p = process_id < 0 && num_processes == 1 ? 0 : process_id;
    *num_processes_p = num_processes;
    return ORIEL_OK;
}
