/* The processes of one `oriel run`, from the first start to the last line of
 * output: one thread, one poll loop. */
#ifndef ORIEL_TOOLS_JOB_H
#define ORIEL_TOOLS_JOB_H

#include <poll.h>

#include "run/hosts.h"
#include "run/keeper.h"
#include "run/relay.h"
#include "run/spawn.h"

typedef struct oriel_job_params {
    int count;             /* processes */
    double timeout_s;      /* 0: none */
    double grace_s;        /* seconds that the others have after a failure */
    const char *log_dir;   /* NULL: none */
    int tag;               /* lines begin with the process */
    char **argv;           /* the program and its arguments */
    const char *host_list; /* NULL: this machine */
    const char *shell;     /* NULL: ssh */
    oriel_hosts *hosts;    /* of the list */
    const char *address;   /* of this machine, as the hosts see it; NULL: to be found */
} oriel_job_params;

enum { ORIEL_JOB_KILL_S = 10 }; /* for SIGKILL to work */

/* A job only ever moves to a later phase. */
enum oriel_job_phase {
    ORIEL_JOB_RUN,
    ORIEL_JOB_GRACE, /* something failed: the others may end by themselves */
    ORIEL_JOB_TERM,  /* SIGTERM was sent */
    ORIEL_JOB_KILL   /* SIGKILL was sent */
};

typedef struct oriel_process {
    int ended;             /* not collected before the end of the job: its id names a group */
    oriel_log_file log;    /* of its output */
    oriel_relay relays[2]; /* of its stdout and its stderr */
} oriel_process;

typedef struct oriel_job {
    const oriel_job_params *params; /* what was asked for */
    oriel_keeper keeper;            /* its table holds the process ids */
    oriel_process *processes;       /* by number */
    oriel_sink sinks[2];            /* stdout, stderr */
    struct pollfd *polls;           /* of the loop */
    int signals;                    /* signalfd */
    int live;                       /* processes that have not ended */

    enum oriel_job_phase phase; /* how far it is */
    double deadline;            /* of the phase */
    double limit;               /* of the whole run, 0: none */
    double next_sweep;          /* for strays, once the processes have ended */
    double stray_term;          /* when strays get SIGTERM; 0: none seen yet */
    int kill_next;              /* after the grace comes SIGKILL, not SIGTERM */
    int interrupts;             /* of SIGINT: the second one kills */
    int hurry;                  /* stopped from outside: the output's reader gets little time */
    int gone;                   /* no process is left, only output */
    int over;                   /* the loop ends */
    int code;                   /* of the first failure, 0: none */

    const char *store;   /* where a process says that it is the first to fail */
    const char *secret;  /* of the store */
    int first;           /* the process that did; -1: none, or nobody has asked yet */
    int held;            /* one that ended before it, and is not the cause then; -1: none */
    siginfo_t held_info; /* how */
} oriel_job;

/* Makes the pipes, log files and the keeper, and blocks the signals that the
 * loop takes. Call before any other thread exists. On failure a sentence has
 * been printed. */
int oriel_job_create(const oriel_job_params *params, oriel_job **job_p);
/* Starts the processes; a failure becomes the job's code. */
void oriel_job_start(oriel_job *job, oriel_spawner *spawner);
/* Returns the exit code when every process has ended and all output is out. */
int oriel_job_supervise(oriel_job *job);
void oriel_job_destroy(oriel_job *job);

/* Queues "oriel run: <sentence>" on stderr. */
void oriel_job_say(oriel_job *job, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
