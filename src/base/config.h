/* The one table of options: name, default, help. It feeds the environment, the
 * docs and `oriel info`. Values are read once, at first use. */
#ifndef ORIEL_BASE_CONFIG_H
#define ORIEL_BASE_CONFIG_H

#include "base/status.h"

enum oriel_option_id {
    ORIEL_OPT_TIMEOUT,      /* seconds */
    ORIEL_OPT_WARN_AFTER,   /* seconds */
    ORIEL_OPT_INIT_TIMEOUT, /* seconds */
    ORIEL_OPT_STAGING,      /* bytes per rank */
    ORIEL_OPT_CHUNK,        /* bytes */
    ORIEL_OPT_SPIN,         /* microseconds */
    ORIEL_OPT_DIRECT,       /* 0 or 1 */
    ORIEL_OPT_TEAM,         /* threads */
    ORIEL_OPT_JITTER,       /* microseconds */
    ORIEL_OPT_ARENA,        /* bytes per rank */
    ORIEL_OPT_WINDOWS,      /* bytes per rank */
    ORIEL_OPT_LOG,          /* error, warn, info, debug */
    ORIEL_OPT_PROCESS_ID,
    ORIEL_OPT_NUM_PROCESSES,
    ORIEL_OPT_STORE,
    ORIEL_OPT_SECRET,
    ORIEL_OPT_HOSTID,
    ORIEL_OPT_ADDRESS,
    ORIEL_OPT_FAULT,
    ORIEL_OPT_NVRTC,           /* a file */
    ORIEL_OPT_NCCL,            /* a file */
    ORIEL_OPT_FABRIC,          /* auto, cuda, nccl */
    ORIEL_OPT_NCCL_COMM,       /* enum oriel_nccl_comm */
    ORIEL_OPT_GIN,             /* 0 or 1 */
    ORIEL_OPT_MULTICAST,       /* 0 or 1 */
    ORIEL_OPT_CACHE,           /* a folder */
    ORIEL_OPT_GPU_CTAS,        /* of all ranks on one GPU */
    ORIEL_OPT_GPU_KERNEL_CTAS, /* the same, for kernels of one's own */
    ORIEL_OPT_GPU_STAGE,       /* bytes per rank */
    ORIEL_OPT_GPU_ARENA,       /* bytes per rank */
    ORIEL_OPT_SYNC,            /* 0 or 1 */
    ORIEL_OPT_COUNT
};

/* The owner of the communicator that calls may use. */
enum oriel_nccl_comm { ORIEL_COMM_AUTO, ORIEL_COMM_OWN, ORIEL_COMM_XLA, ORIEL_COMM_NONE };

/* Never NULL; valid until the next oriel_config_load that changes it. */
const char *oriel_config_string(enum oriel_option_id id);
/* Sizes take K, M, G. -1 for an option that is empty or no number. */
double oriel_config_number(enum oriel_option_id id);
/* The name of a value of an option that is a choice; NULL: it is none. */
const char *oriel_config_choice(enum oriel_option_id id, int number);
/* Re-reads the environment; for tests and for init after finalize. Warns about
 * each ORIEL_* variable that is not in the table, once per name. A value that
 * does not parse is ORIEL_ERR_INVALID and names the variable; that option then
 * has its default. */
oriel_status oriel_config_load(void);

#endif
