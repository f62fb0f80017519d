#include "fabric/nccl/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "base/config.h"

struct symbol {
    size_t at;        /* offset in nccl_library */
    const char *name; /* in the library */
};

#define NCCL_SYMBOL(name, symbol, params) {offsetof(nccl_library, name), #symbol},
static const struct symbol needed[] = {
    NCCL_CALLS(NCCL_SYMBOL){offsetof(nccl_library, error_text), "ncclGetErrorString"},
    {offsetof(nccl_library, last_error), "ncclGetLastError"},
    {offsetof(nccl_library, team_lsa), "ncclTeamLsa"},
};
static const struct symbol later[] = {NCCL_LATER_CALLS(NCCL_SYMBOL)};

oriel_status oriel_nccl_check(const nccl_library *nccl, nccl_comm comm, nccl_result result,
                              const char *what)
{
    const char *more;

    if (result == NCCL_SUCCESS)
        return ORIEL_OK;
    more = nccl->last_error(comm);
    return oriel_fail(ORIEL_ERR_SYSTEM, "NCCL %d.%d.%d: %s failed: %s (%d)%s%s",
                      NCCL_PARTS(nccl->version), what, nccl->error_text(result), result,
                      more != NULL && more[0] != '\0' ? ": " : "", more != NULL ? more : "");
}

nccl_config oriel_nccl_config(void)
{
    return (nccl_config){.size = sizeof(nccl_config),
                         .magic = NCCL_MAGIC,
                         .version = NCCL_CONFIG_VERSION,
                         .blocking = NCCL_UNDEFINED,
                         .cga_cluster_size = NCCL_UNDEFINED,
                         .min_ctas = NCCL_UNDEFINED,
                         .max_ctas = NCCL_UNDEFINED,
                         .split_share = NCCL_UNDEFINED,
                         .traffic_class = NCCL_UNDEFINED,
                         .collnet_enable = NCCL_UNDEFINED,
                         .cta_policy = NCCL_UNDEFINED,
                         .shrink_share = NCCL_UNDEFINED,
                         .nvls_ctas = NCCL_UNDEFINED,
                         .channels_per_net_peer = NCCL_UNDEFINED,
                         .nvlink_centric_sched = NCCL_UNDEFINED};
}

/* What XLA has loaded comes first: two NCCLs in a process share neither communicators nor
 * settings. */
static void *find_library(const char **file_p)
{
    const char *files[] = {"libnccl.so.2", oriel_config_string(ORIEL_OPT_NCCL), "libnccl.so.2"};
    void *library = dlopen(files[0], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

    *file_p = files[0];
    for (size_t i = 1; i < 3 && library == NULL; i++) {
        if (files[i][0] == '\0')
            continue;
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        *file_p = files[i];
    }
    return library;
}

int oriel_nccl_loaded(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    nccl_result (*get_version)(int *) = NULL;
    int version = 0;

    if (library == NULL)
        return 0;
    *(void **)&get_version = dlsym(library, "ncclGetVersion");
    if (get_version == NULL || get_version(&version) != NCCL_SUCCESS)
        version = 0;
    dlclose(library);
    return version;
}

static void name_file(void *call, const char *asked, nccl_library *nccl)
{
    Dl_info info;

    if (dladdr(call, &info) != 0 && info.dli_fname != NULL)
        asked = info.dli_fname;
    snprintf(nccl->file, sizeof nccl->file, "%s", asked);
}

/* The library stays open: threads of its own run until the process ends. */
static oriel_status open_library(nccl_library *nccl)
{
    const char *file = NULL;
    void *library = find_library(&file);
    void *found = NULL;

    if (library == NULL)
        return oriel_fail(
            ORIEL_ERR_UNSUPPORTED,
            "no NCCL: libnccl.so.2 is not found; install nvidia-nccl-cu13 (or -cu12), "
            "or set ORIEL_NCCL to its file");
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        found = dlsym(library, needed[i].name);
        if (found == NULL)
            return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                              "%s has no %s: it is too old, 2.28.3 is needed", file,
                              needed[i].name);
        *(void **)((char *)nccl + needed[i].at) = found;
    }
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        *(void **)((char *)nccl + later[i].at) = dlsym(library, later[i].name);
    name_file(found, file, nccl);
    if (nccl->get_version(&nccl->version) != NCCL_SUCCESS || nccl->version < NCCL_OLDEST)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "%s is NCCL %d.%d.%d; 2.28.3 is needed",
                          nccl->file, NCCL_PARTS(nccl->version));
    return ORIEL_OK;
}

oriel_status oriel_nccl_open(const nccl_library **nccl_p)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static nccl_library table;
    static int opened;
    oriel_status st = ORIEL_OK;

    pthread_mutex_lock(&lock);
    if (!opened)
        st = open_library(&table);
    opened |= st == ORIEL_OK;
    pthread_mutex_unlock(&lock);
    if (st == ORIEL_OK)
        *nccl_p = &table;
    return st;
}
