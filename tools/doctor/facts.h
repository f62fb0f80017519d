/* What CUDA and NCCL offer on this machine, looked up and measured. */
#ifndef ORIEL_TOOLS_DOCTOR_FACTS_H
#define ORIEL_TOOLS_DOCTOR_FACTS_H

enum { FACTS_GPUS = 16, FACTS_TEXT = 256, FACTS_PATH = 1024 };

typedef struct oriel_gpu_facts {
    char name[64];                        /* as the driver calls it */
    unsigned long long bytes;             /* of its memory */
    int sms, arch;                        /* 90 for sm_90 */
    int vmm, fds, fabric, multicast, mps; /* whether it has them: see probe_gpus.c */
    unsigned reaches;         /* bit per GPU here that its kernels can touch, its own as well */
    double copy_rate;         /* bytes read plus written, per second; 0: not measured */
    double memory_rate;       /* what memory clock and bus width give */
    char problem[FACTS_TEXT]; /* why it cannot be used; "" */
} oriel_gpu_facts;

typedef struct oriel_library_facts {
    char file[FACTS_PATH];   /* where it was found; "": it was not */
    int major, minor, patch; /* of its version; NVRTC tells no patch */
} oriel_library_facts;

typedef struct oriel_cuda_facts {
    int has_driver;                   /* libcuda.so.1 can be opened */
    char problem[FACTS_TEXT];         /* why there is no GPU to use; "" */
    char driver[32];                  /* "580.82.07"; "": unknown */
    int version;                      /* of CUDA, that the driver knows: 13000 */
    int num_gpus;                     /* of which gpus has the first FACTS_GPUS */
    oriel_gpu_facts gpus[FACTS_GPUS]; /* by ordinal */
    char mps_folder[FACTS_TEXT];      /* where its control daemon is reached */
    int mps_daemon;                   /* its process; 0: none runs */
    oriel_library_facts nvrtc;        /* the compiler for kernels */
} oriel_cuda_facts;

/* Opens the driver and all GPUs, and copies within each: not for a process that has other
 * work. */
void oriel_cuda_look(oriel_cuda_facts *facts_p);

/* NCCL, and what depends on its version. */
typedef struct oriel_nccl_facts {
    oriel_library_facts library; /* where it was found */
    char problem[FACTS_TEXT];    /* why it cannot be used, if there is one; "" */
    int cuda;                    /* that it was built for: 1300; 0: it does not say */
    int config;                  /* version of the structure that oriel passes: 22800 */
    /* Whether this version has them: see probe_gpus.c. */
    int shares_gpu, sizes_differ, host_pointers, bounded_barrier;
} oriel_nccl_facts;

/* Opens the library. */
void oriel_nccl_find(oriel_nccl_facts *facts_p);

#endif
