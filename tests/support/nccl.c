#include "support/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/check.h"

enum { VERSION_LEAST = 23000, CTAS_MOST = 32, CTAS_OF_GPU = 120 };

nccl_calls nccl;

static const char *(*error_text)(int result);
static const char *(*last_error)(nccl_comm comm);

void nccl_check(const char *file, int line, const char *what, int result)
{
    if (result != 0)
        check_failed(file, line, what, "NCCL says %d: %s: %s", result, error_text(result),
                     last_error(NULL));
}

static void skip(const char *library, const char *why)
{
    printf("skipped: %s: %s\n", library, why);
    exit(77);
}

/* Before the library reads them. Kernels that cannot all be resident together wait for
 * each other for ever. */
static void set_environment(int size)
{
    char ctas[16];
    int each = CTAS_OF_GPU / size;

    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    snprintf(ctas, sizeof ctas, "%d", each < CTAS_MOST ? each : CTAS_MOST);
    if (size > 2)
        setenv("NCCL_MAX_CTAS", ctas, 0);
}

static void *find(void *handle, const char *library, const char *name)
{
    void *found = dlsym(handle, name);

    if (found == NULL)
        skip(library, dlerror());
    return found;
}

void nccl_open(const char *library, int size)
{
    static const struct {
        size_t at;
        const char *name;
    } symbols[] = {
#define NCCL_SYMBOL(name, symbol, params) {offsetof(nccl_calls, name), #symbol},
        NCCL_CALLS(NCCL_SYMBOL)};
    void *handle;
    int version = 0;

    set_environment(size);
    handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        skip(library, dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        *(void **)((char *)&nccl + symbols[i].at) = find(handle, library, symbols[i].name);
    *(void **)&error_text = find(handle, library, "ncclGetErrorString");
    *(void **)&last_error = find(handle, library, "ncclGetLastError");
    CHECK_NCCL(nccl.version(&version));
    if (version < VERSION_LEAST)
        skip(library, "NCCL before 2.30 refuses ranks that share a GPU");
}

nccl_comm nccl_comm_of(oriel_comm *comm, int rank)
{
    oriel_group *world = oriel_comm_world(comm);
    nccl_id id = {{0}};
    nccl_comm made;

    if (rank == 0)
        CHECK_NCCL(nccl.id_make(&id));
    CHECK_OK(oriel_broadcast(world, rank, &id, &id, sizeof id, ORIEL_U8, 0));
    CHECK_NCCL(nccl.comm_create(&made, oriel_group_size(world), id, rank));
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
