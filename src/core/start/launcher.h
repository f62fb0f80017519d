/* What a launcher that is not oriel's own says about this process: Open MPI's
 * `mpirun` and Slurm's `srun`, by the variables they set.
 *
 * What counts, in this order: the caller's arguments, ORIEL_PROCESS_ID and
 * ORIEL_NUM_PROCESSES, the innermost of the two launchers. Slurm's variables count
 * in a process of a step alone (SLURM_STEP_ID and SLURM_PROCID): an allocation's
 * shell and a batch script have SLURM_NTASKS too, but are one process. Where both
 * launchers left variables mpirun ran inside srun's step (or started its daemons
 * by it), unless srun says that it started this very process. */
#ifndef ORIEL_CORE_START_LAUNCHER_H
#define ORIEL_CORE_START_LAUNCHER_H

#include "core/store/address.h"

typedef struct oriel_launcher {
    const char *name;  /* "mpirun" or "srun"; NULL: neither, and process 0 of 1 */
    int process_id;    /* 0 ... num_processes - 1 */
    int num_processes; /* of the job */
    int local_id;      /* among the processes of this machine */
    int local_size;    /* processes on this machine */
    uint64_t job;      /* hash of what tells this job from others; 0: nothing does */
    char secret[128];  /* what only this job's processes were given; "" : nothing */
} oriel_launcher;

/* Local: reads the environment. Variables that contradict each other are
 * ORIEL_ERR_INVALID; no launcher at all is ORIEL_OK. */
oriel_status oriel_launcher_find(oriel_launcher *launcher_p);
/* Where the processes of one meeting find each other, held by process 0: an
 * abstract Unix socket, whose two ends check each other's user. Refuses a job
 * that spans machines. */
oriel_status oriel_launcher_store(const oriel_launcher *launcher, const char *meeting,
                                  char address_p[ORIEL_ADDRESS_TEXT]);
/* Local: this process's number and the number of processes, by the environment;
 * 0 of 1 when it says nothing. */
ORIEL_API oriel_status oriel_place_find(int *process_id_p, int *num_processes_p);

#endif
