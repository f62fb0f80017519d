#include "support/gpu/nccl.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "support/check.h"

enum { CTAS_MOST = 32, CTAS_OF_GPU = 120 };

nccl_library nccl;

void nccl_check(const char *file, int line, const char *what, int result)
{
    if (result != 0)
        check_failed(file, line, what, "NCCL says %d: %s: %s", result, nccl.error_text(result),
                     nccl.last_error(NULL));
}

static void skip(const char *library, const char *why)
{
    printf("skipped: %s: %s\n", library, why);
    exit(77);
}

void nccl_open(const char *library)
{
    const nccl_library *opened;

    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0); /* before the library reads it */
    setenv("ORIEL_NCCL", library, 1);
    CHECK_OK(oriel_config_load());
    if (oriel_nccl_open(&opened) != ORIEL_OK)
        skip(library, oriel_last_error());
    nccl = *opened;
    if (nccl.version < NCCL_SHARES_GPU)
        skip(library, "NCCL before 2.30 refuses ranks that share a GPU");
}

/* Kernels that cannot all be resident together wait for each other for ever. */
static nccl_config config_of(int size)
{
    nccl_config config = oriel_nccl_config();
    int each = CTAS_OF_GPU / size;

    config.blocking = 1;
    if (size > 2)
        config.max_ctas = each < CTAS_MOST ? each : CTAS_MOST;
    return config;
}

nccl_comm nccl_comm_of(oriel_comm *comm, int rank)
{
    oriel_group *world = oriel_comm_world(comm);
    nccl_config config = config_of(oriel_group_size(world));
    nccl_id id = {{0}};
    nccl_comm made;

    if (rank == 0)
        CHECK_NCCL(nccl.id_make(&id));
    CHECK_OK(oriel_broadcast(world, rank, &id, &id, sizeof id, ORIEL_U8, 0));
    CHECK_NCCL(nccl.comm_create(&made, oriel_group_size(world), id, rank, &config));
    return made;
}

nccl_memory nccl_memory_make(nccl_comm comm, size_t bytes)
{
    nccl_memory memory = {NULL, NULL};

    CHECK_NCCL(nccl.mem_alloc(&memory.at, bytes));
    CHECK_NCCL(nccl.window_register(comm, memory.at, bytes, &memory.window, NCCL_WINDOW_SYMMETRIC));
    CHECK(memory.window != NULL, "NCCL has no symmetric memory here");
    return memory;
}

void nccl_memory_free(nccl_comm comm, nccl_memory *memory)
{
    CHECK_NCCL(nccl.window_deregister(comm, memory->window));
    CHECK_NCCL(nccl.mem_free(memory->at));
}
