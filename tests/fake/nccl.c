/* A libnccl.so.2 without a GPU, for tests of what is done when NCCL fails. FAKE_NCCL is a list
 * of what differs from a good one: "version=22707 polls=3 stuck=1 error=3 null=1 lsa=1 hang=1
 * gin=2 other=1".
 * fake_nccl_text tells what was called. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experimental/nccl_device.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

char fake_nccl_text[1024];
/* As in the real one, where it is how to tell. */
__attribute__((used)) static const char built_for[] = "NCCL version 2.30.7+cuda13.0";

struct nccl_comm_object {
    int size, rank, polls;
};

static int setting(const char *name, int fallback)
{
    const char *all = getenv("FAKE_NCCL");
    const char *at = all != NULL ? strstr(all, name) : NULL;

    return at != NULL ? atoi(at + strlen(name)) : fallback;
}

static void note(const char *what, int value)
{
    size_t used = strlen(fake_nccl_text);

    snprintf(fake_nccl_text + used, sizeof fake_nccl_text - used, "%s %d\n", what, value);
}

#define CALL(symbol, params)                                                                       \
    nccl_result symbol params;                                                                     \
    nccl_result symbol params

CALL(ncclGetVersion, (int *version))
{
    *version = setting("version=", 23007);
    return NCCL_SUCCESS;
}

CALL(ncclCommInitRankConfig,
     (nccl_comm * comm, int size, nccl_id id, int rank, nccl_config *config))
{
    nccl_comm made = calloc(1, sizeof *made);

    *made = (struct nccl_comm_object){size, rank, setting("polls=", 0)};
    note("create", rank);
    note("ctas", config->max_ctas);
    note("blocking", config->blocking);
    *comm = made;
    return NCCL_IN_PROGRESS;
}

CALL(ncclCommGetAsyncError, (nccl_comm comm, nccl_result *state))
{
    *state = setting("error=", NCCL_SUCCESS);
    if (setting("stuck=", 0) || comm->polls-- > 0)
        *state = NCCL_IN_PROGRESS;
    return NCCL_SUCCESS;
}

CALL(ncclCommCount, (nccl_comm comm, int *size))
{
    *size = comm->size;
    return NCCL_SUCCESS;
}

CALL(ncclCommUserRank, (nccl_comm comm, int *rank))
{
    *rank = comm->rank;
    return NCCL_SUCCESS;
}

CALL(ncclCommFinalize, (nccl_comm comm))
{
    note("finalize", comm->rank);
    return NCCL_IN_PROGRESS;
}

CALL(ncclCommDestroy, (nccl_comm comm))
{
    note("destroy", comm->rank);
    free(comm);
    return NCCL_SUCCESS;
}

CALL(ncclCommAbort, (nccl_comm comm))
{
    if (setting("hang=", 0))
        pause();
    note("abort", comm->rank);
    free(comm);
    return NCCL_SUCCESS;
}

CALL(ncclCommWindowRegister,
     (nccl_comm comm, void *at, size_t bytes, nccl_window *window, int flags))
{
    *window = setting("null=", 0) ? NULL : at;
    comm->polls = setting("polls=", 0);
    return NCCL_IN_PROGRESS;
}

CALL(ncclCommWindowDeregister, (nccl_comm comm, nccl_window window))
{
    note("deregister", comm->rank);
    return NCCL_SUCCESS;
}

CALL(ncclGroupEnd, (void))
{
    return NCCL_IN_PROGRESS;
}

CALL(ncclGetLsaDevicePointer, (nccl_window window, size_t offset, int lsa_rank, void **at))
{
    *at = (void *)((uintptr_t)window + offset + ((uintptr_t)lsa_rank << 32));
    return NCCL_SUCCESS;
}

CALL(ncclCommQueryProperties, (nccl_comm comm, void *properties))
{
    ((nccl_properties *)properties)->gin_type = setting("gin=", NCCL_GIN_NONE);
    return NCCL_SUCCESS;
}

/* other=1: laid out as by a version that nobody knows. */
CALL(ncclDevCommCreate, (nccl_comm comm, const void *asked, void *dev_comm))
{
    const nccl_gin_needs *needs = asked;
    nccl_device_comm *made = dev_comm;
    int known = !setting("other=", 0);

    note("signals", needs->signals);
    note("contexts", needs->contexts);
    note("connection", needs->connection);
    note("traffic", needs->traffic_class == NCCL_UNDEFINED);
    note("strong", needs->strong_signals && needs->va_signals && !needs->force);
    *made = (nccl_device_comm){.magic = NCCL_MAGIC,
                               .version = needs->first.version,
                               .rank = comm->rank,
                               .size = comm->size,
                               .gin_connections = (unsigned char)known,
                               .gin_types = {NCCL_GIN_PROXY},
                               .gin_signals = needs->signals};
    return NCCL_IN_PROGRESS;
}

nccl_team ncclTeamLsa(nccl_comm comm);
nccl_team ncclTeamLsa(nccl_comm comm)
{
    int size = setting("lsa=", comm->size);

    return (nccl_team){size, comm->rank % size, 1};
}

const char *ncclGetErrorString(nccl_result result);
const char *ncclGetErrorString(nccl_result result)
{
    return "a fake error";
}

const char *ncclGetLastError(nccl_comm comm);
const char *ncclGetLastError(nccl_comm comm)
{
    return "";
}
