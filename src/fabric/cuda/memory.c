#include "fabric/cuda/memory.h"

#include <stdint.h>
#include <string.h>

#include "base/math.h"
#include "base/config.h"
#include "base/sys.h"

/* ---- devices ----------------------------------------------------------------------- */

/* VMM and descriptors are what the fabric stands on. */
static oriel_status check_device(oriel_gpu *gpu)
{
    int vmm = 0;
    int fds = 0;
    int major = 0;
    int minor = 0;
    const struct {
        int which;    /* CU_ATTRIBUTE_... */
        int *value_p; /* where the answer goes */
    } asked[] = {{CU_ATTRIBUTE_VMM, &vmm},           {CU_ATTRIBUTE_POSIX_FD, &fds},
                 {CU_ATTRIBUTE_SM_COUNT, &gpu->sms}, {CU_ATTRIBUTE_MAJOR, &major},
                 {CU_ATTRIBUTE_MINOR, &minor},       {CU_ATTRIBUTE_RDMA, &gpu->rdma}};

    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        oriel_status st = oriel_cuda_check(
            oriel_cu->device_attribute(asked[i].value_p, asked[i].which, gpu->device),
            "asking a device");
        if (st != ORIEL_OK)
            return st;
    }
    gpu->arch = 10 * major + minor;
    if (!vmm || !fds || gpu->arch < 80)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "device %d (%s, sm_%d) lacks %s; oriel needs sm_80 or later with virtual "
                          "memory and POSIX descriptors",
                          gpu->ordinal, gpu->name, gpu->arch,
                          gpu->arch < 80 ? "the architecture"
                          : !vmm         ? "virtual memory management"
                                         : "POSIX descriptors");
    return ORIEL_OK;
}

oriel_status oriel_cuda_gpu_open(int ordinal, oriel_gpu *gpu_p)
{
    oriel_gpu gpu = {.ordinal = ordinal};
    int count = 0;
    oriel_status st = oriel_cuda_open();

    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->device_count(&count), "counting devices");
    if (st != ORIEL_OK)
        return st;
    if (ordinal < 0 || ordinal >= count)
        return oriel_fail(ORIEL_ERR_INVALID, "there is no CUDA device %d; this process sees %d",
                          ordinal, count);
    st = oriel_cuda_check(oriel_cu->device_get(&gpu.device, ordinal), "opening a device");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->device_name(gpu.name, sizeof gpu.name, gpu.device),
                              "naming a device");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->device_uuid(&gpu.uuid, gpu.device), "naming a device");
    if (st == ORIEL_OK)
        st = check_device(&gpu);
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->primary_retain(&gpu.context, gpu.device),
                              "taking a device's context");
    if (st != ORIEL_OK)
        return st;
    oriel_cuda_enter(&gpu);
    st = oriel_cuda_check(oriel_cu->stream_create(&gpu.stream, CU_STREAM_NON_BLOCKING_FLAG, -5),
                          "creating a stream");
    oriel_cuda_leave();
    if (st != ORIEL_OK) {
        oriel_cu->primary_release(gpu.device);
        return st;
    }
    *gpu_p = gpu;
    return ORIEL_OK;
}

void oriel_cuda_gpu_close(oriel_gpu *gpu)
{
    if (gpu->context == NULL)
        return;
    oriel_cu->stream_destroy(gpu->stream);
    oriel_cu->primary_release(gpu->device);
    memset(gpu, 0, sizeof *gpu);
}

oriel_status oriel_cuda_reaches(const oriel_gpu *from, const oriel_gpu *to)
{
    cu_result result;
    int can = 0;
    oriel_status st;

    if (from->device == to->device)
        return ORIEL_OK;
    st = oriel_cuda_check(oriel_cu->device_reaches(&can, from->device, to->device),
                          "asking for peer access");
    if (st != ORIEL_OK)
        return st;
    if (!can)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "device %d (%s) has no peer access to device %d (%s): there is no NVLink "
                          "or PCIe path between them that kernels can use",
                          from->ordinal, from->name, to->ordinal, to->name);
    oriel_cuda_enter(from);
    result = oriel_cu->context_reach(to->context, 0);
    oriel_cuda_leave();
    return result == CU_PEER_ACCESS_ALREADY_ENABLED
               ? ORIEL_OK
               : oriel_cuda_check(result, "enabling peer access");
}

/* ---- memory ------------------------------------------------------------------------ */

static cu_allocation allocation_on(const oriel_gpu *gpu)
{
    return (cu_allocation){.type = CU_ALLOCATION_PINNED,
                           .handle_types = CU_HANDLE_POSIX_FD,
                           .location = {.type = CU_LOCATION_DEVICE, .id = gpu->device},
                           .flags = {.rdma = gpu->rdma && oriel_config_number(ORIEL_OPT_GIN) > 0}};
}

/* ---- addresses ------------------------------------------------------------------------ */

/* Those of the heaps of a world and its peers, and of as many again. */
enum { MOST_KEPT = 256 };

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    cu_ptr base;  /* 0: no entry */
    size_t bytes; /* from there on */
    int used;     /* memory is mapped there */
} kept[MOST_KEPT];

static oriel_status reserve_new(oriel_cuda_memory *memory)
{
    return oriel_cuda_check(oriel_cu->mem_reserve(&memory->base, memory->bytes, 0, 0, 0),
                            "reserving addresses");
}

/* The first entry that fits, or a new one. */
static oriel_status reserve_lasting(oriel_cuda_memory *memory)
{
    oriel_status st = ORIEL_OK;
    int i = 0;

    pthread_mutex_lock(&kept_lock);
    while (i < MOST_KEPT && kept[i].base != 0 && (kept[i].used || kept[i].bytes != memory->bytes))
        i++;
    memory->lasting = i < MOST_KEPT;
    if (i == MOST_KEPT || kept[i].base == 0)
        st = reserve_new(memory);
    else
        memory->base = kept[i].base;
    if (st == ORIEL_OK && i < MOST_KEPT) {
        kept[i].base = memory->base;
        kept[i].bytes = memory->bytes;
        kept[i].used = 1;
    }
    pthread_mutex_unlock(&kept_lock);
    return st;
}

static void unreserve(const oriel_cuda_memory *memory)
{
    if (!memory->lasting) {
        oriel_cu->mem_unreserve(memory->base, memory->bytes);
        return;
    }
    pthread_mutex_lock(&kept_lock);
    for (int i = 0; i < MOST_KEPT; i++) {
        if (kept[i].base == memory->base)
            kept[i].used = 0;
    }
    pthread_mutex_unlock(&kept_lock);
}

/* Takes over memory->handle. */
static oriel_status map_handle(oriel_cuda_memory *memory)
{
    oriel_status st = memory->lasting ? reserve_lasting(memory) : reserve_new(memory);

    if (st != ORIEL_OK)
        goto err_release;
    st = oriel_cuda_check(oriel_cu->mem_map(memory->base, memory->bytes, 0, memory->handle, 0),
                          "mapping memory");
    if (st != ORIEL_OK)
        goto err_unreserve;
    return ORIEL_OK;

err_unreserve:
    unreserve(memory);
err_release:
    oriel_cu->mem_release(memory->handle);
    memory->base = 0;
    return st;
}

oriel_status oriel_cuda_memory_open(const oriel_cuda_memory *memory, const oriel_gpu *gpus, int n)
{
    for (int i = 0; i < n; i++) {
        cu_access access = {.location = {.type = CU_LOCATION_DEVICE, .id = gpus[i].device},
                            .flags = CU_ACCESS_READ_WRITE};
        oriel_status st =
            oriel_cuda_check(oriel_cu->mem_access(memory->base, memory->bytes, &access, 1),
                             "opening memory to a device");
        if (st != ORIEL_OK)
            return st;
    }
    return ORIEL_OK;
}

/* Waits for what was put on the GPU's stream, if it was, and leaves its context. */
static oriel_status finish(const oriel_gpu *gpu, cu_result result, const char *what)
{
    if (result == CU_OK)
        result = oriel_cu->stream_sync(gpu->stream);
    oriel_cuda_leave();
    return oriel_cuda_check(result, what);
}

oriel_status oriel_cuda_clear(const oriel_gpu *gpu, cu_ptr at, size_t bytes)
{
    oriel_cuda_enter(gpu);
    return finish(gpu, oriel_cu->fill(at, 0, bytes, gpu->stream), "clearing memory");
}

oriel_status oriel_cuda_memory_create(const oriel_gpu *gpu, size_t bytes,
                                      oriel_cuda_memory *memory_p)
{
    cu_allocation allocation = allocation_on(gpu);
    oriel_cuda_memory memory = {.fd = -1, .lasting = 1};
    size_t granularity = 0;
    oriel_status st =
        oriel_cuda_check(oriel_cu->granularity(&granularity, &allocation, CU_GRANULARITY_MINIMUM),
                         "asking a device");

    if (st != ORIEL_OK)
        return st;
    memory.bytes = oriel_round_up(bytes, granularity);
    st = oriel_cuda_check(oriel_cu->mem_create(&memory.handle, memory.bytes, &allocation, 0),
                          "allocating device memory");
    if (st != ORIEL_OK)
        return oriel_fail_in(st, "%zu bytes on device %d", memory.bytes, gpu->ordinal);
    st = map_handle(&memory);
    if (st != ORIEL_OK)
        return st;
    st = oriel_cuda_memory_open(&memory, gpu, 1);
    if (st == ORIEL_OK)
        st = oriel_cuda_clear(gpu, memory.base, memory.bytes);
    if (st == ORIEL_OK)
        st =
            oriel_cuda_check(oriel_cu->mem_export(&memory.fd, memory.handle, CU_HANDLE_POSIX_FD, 0),
                             "exporting device memory");
    if (st != ORIEL_OK) {
        oriel_cuda_memory_close(&memory);
        return st;
    }
    *memory_p = memory;
    return ORIEL_OK;
}

oriel_status oriel_cuda_memory_import(int fd, size_t bytes, int lasting,
                                      oriel_cuda_memory *memory_p)
{
    oriel_cuda_memory memory = {.bytes = bytes, .fd = -1, .lasting = lasting};
    oriel_status st = oriel_cuda_check(
        oriel_cu->mem_import(&memory.handle, (void *)(uintptr_t)fd, CU_HANDLE_POSIX_FD),
        "importing device memory");

    if (st == ORIEL_OK)
        st = map_handle(&memory);
    if (st == ORIEL_OK)
        *memory_p = memory;
    return st;
}

oriel_status oriel_cuda_memory_alias(const oriel_gpu *gpu, cu_ptr at, size_t bytes,
                                     oriel_cuda_memory *memory_p)
{
    oriel_cuda_memory memory = {.bytes = bytes, .fd = -1};
    oriel_status st = oriel_cuda_check(oriel_cu->mem_retain(&memory.handle, (void *)(uintptr_t)at),
                                       "holding device memory");

    if (st != ORIEL_OK)
        return st;
    st = oriel_cuda_check(oriel_cu->mem_export(&memory.fd, memory.handle, CU_HANDLE_POSIX_FD, 0),
                          "exporting device memory");
    if (st != ORIEL_OK) {
        oriel_cu->mem_release(memory.handle);
        return st;
    }
    oriel_sys_now->close(memory.fd);
    memory.fd = -1;
    st = map_handle(&memory);
    if (st == ORIEL_OK)
        st = oriel_cuda_memory_open(&memory, gpu, 1);
    if (st == ORIEL_OK)
        *memory_p = memory;
    else
        oriel_cuda_memory_close(&memory);
    return st;
}

void oriel_cuda_memory_close(oriel_cuda_memory *memory)
{
    if (memory->base == 0)
        return;
    oriel_cu->mem_unmap(memory->base, memory->bytes);
    unreserve(memory);
    oriel_cu->mem_release(memory->handle);
    if (memory->fd >= 0)
        oriel_sys_now->close(memory->fd);
    *memory = (oriel_cuda_memory){.fd = -1};
}

oriel_status oriel_cuda_write(const oriel_gpu *gpu, cu_ptr to, const void *from, size_t bytes)
{
    oriel_cuda_enter(gpu);
    return finish(gpu, oriel_cu->copy_in(to, from, bytes, gpu->stream), "writing device memory");
}

oriel_status oriel_cuda_read(const oriel_gpu *gpu, void *to, cu_ptr from, size_t bytes)
{
    oriel_cuda_enter(gpu);
    return finish(gpu, oriel_cu->copy_out(to, from, bytes, gpu->stream), "reading device memory");
}
