/* What CUDA offers on this machine, looked up and measured: for `oriel doctor`. */
#ifndef ORIEL_FABRIC_CUDA_FACTS_H
#define ORIEL_FABRIC_CUDA_FACTS_H

enum { FACTS_GPUS = 16, FACTS_TEXT = 256, FACTS_PATH = 1024 };

typedef struct oriel_gpu_facts {
    char name[64];
    unsigned long long bytes;
    int sms, arch; /* 90 for sm_90 */
    int vmm, fds, fabric, multicast, mps;
    unsigned reaches;         /* bit per GPU here that its kernels can touch, its own as well */
    double copy_rate;         /* bytes read plus written, per second; 0: not measured */
    double memory_rate;       /* what memory clock and bus width give */
    char problem[FACTS_TEXT]; /* why it cannot be used; "" */
} oriel_gpu_facts;

typedef struct oriel_library_facts {
    char file[FACTS_PATH]; /* where it was found; "": it was not */
    int major, minor, patch;
} oriel_library_facts;

typedef struct oriel_cuda_facts {
    int has_driver;           /* libcuda.so.1 can be opened */
    char problem[FACTS_TEXT]; /* why there is no GPU to use; "" */
    char driver[32];          /* "580.82.07"; "": unknown */
    int version;              /* of CUDA, that the driver knows: 13000 */
    int num_gpus;             /* of which gpus has the first FACTS_GPUS */
    oriel_gpu_facts gpus[FACTS_GPUS];
    char mps_folder[FACTS_TEXT]; /* where its control daemon is reached */
    int mps_daemon;              /* its process; 0: none runs */
    oriel_library_facts nvrtc;
} oriel_cuda_facts;

/* Opens the driver and all GPUs, and copies within each: not for a process that has other
 * work. */
void oriel_cuda_look(oriel_cuda_facts *facts_p);

#endif
