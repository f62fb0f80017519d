/* What `oriel doctor` finds. Each probe adds its findings to one report. */
#ifndef ORIEL_TOOLS_DOCTOR_H
#define ORIEL_TOOLS_DOCTOR_H

#include <stddef.h>
#include <sys/types.h>

#include "doctor/facts.h"

enum oriel_finding_status {
    ORIEL_FINDING_OK,
    ORIEL_FINDING_WARN,    /* works, but slower or less safe than it could be */
    ORIEL_FINDING_MISSING, /* not here, and oriel works without it */
    ORIEL_FINDING_ERROR,   /* oriel does not work until this is mended */
    ORIEL_FINDING_STATUS_COUNT
};

typedef struct oriel_finding {
    char name[32];                    /* of what was tried */
    enum oriel_finding_status status; /* how it went */
    char what[320];                   /* one sentence: what was found */
    const char *why;                  /* what it means; "" when there is nothing to say */
    const char *mend;                 /* "" when there is nothing to mend */
} oriel_finding;

/* What there is for GPUs. */
typedef struct oriel_gpu_report {
    oriel_cuda_facts cuda; /* the driver, its GPUs and NVRTC */
    oriel_nccl_facts nccl; /* the library and what it can do */
} oriel_gpu_report;

enum { ORIEL_FINDINGS_MAX = 96 };
typedef struct oriel_report {
    oriel_finding findings[ORIEL_FINDINGS_MAX]; /* in the order in which they are printed */
    int count;                                  /* so many of them */
    oriel_gpu_report gpus;                      /* for --json */
} oriel_report;

/* `why` and `mend` must outlive the report. */
void oriel_report_add(oriel_report *report, const char *name, enum oriel_finding_status status,
                      const char *why, const char *mend, const char *what_fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* `oriel doctor --job`: the ranks of a running job. Returns the exit code. */
int oriel_doctor_job(pid_t pid, int json);
/* Prints a string of JSON. */
void oriel_json_string(const char *text);

void oriel_probe_machine(oriel_report *report); /* kernel, cores, memory, limits */
void oriel_probe_system(oriel_report *report);  /* the calls oriel stands on, tried out */
void oriel_probe_oriel(oriel_report *report);   /* options, fabric, store */
/* Libraries inside the Python wheels that NVIDIA makes; "": there are none. */
typedef struct oriel_wheels {
    char nvrtc[FACTS_PATH]; /* the library's path */
    char nccl[FACTS_PATH];  /* the library's path */
} oriel_wheels;
void oriel_probe_python(oriel_report *report, oriel_wheels *wheels_p);
void oriel_probe_gpus(oriel_report *report, const oriel_wheels *wheels);
/* The object that tells of CUDA, or null. */
void oriel_gpus_json(const oriel_gpu_report *gpus);
void oriel_probe_libraries(oriel_report *report);

/* Forks a child that lives `seconds` at most; 0 in the child. */
pid_t oriel_probe_fork(unsigned seconds);
/* The child's exit code, -1 when it was killed. */
int oriel_probe_wait(pid_t pid);
/* Reads until the end of the pipe or the deadline; returns the bytes. */
size_t oriel_probe_read(int fd, double deadline, void *data, size_t bytes);

#endif
