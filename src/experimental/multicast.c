#include "experimental/multicast.h"

#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/sys.h"
#include "core/nccl/comm.h"
#include "fabric/port.h"

static oriel_multicast *of(const oriel_comm *comm)
{
    return &oriel_experimental_of(comm)->multicast;
}

const oriel_multicast *oriel_multicast_of(const oriel_comm *comm)
{
    return oriel_experimental_of(comm) != NULL ? of(comm) : NULL;
}

static cu_multicast properties(const oriel_comm *comm)
{
    return (cu_multicast){.devices = (unsigned)comm->size,
                          .bytes = of(comm)->bytes,
                          .handle_types = CU_HANDLE_POSIX_FD};
}

/* ---- whether ------------------------------------------------------------------------------- */

static int has_calls(void)
{
    return oriel_cu->multicast_create != NULL && oriel_cu->multicast_add != NULL &&
           oriel_cu->multicast_bind != NULL && oriel_cu->multicast_unbind != NULL &&
           oriel_cu->multicast_granularity != NULL;
}

static oriel_status check_ranks(const oriel_comm *comm)
{
    const oriel_heap *heap = &comm->heap;

    for (int r = 0; r < comm->size; r++) {
        for (int k = 0; k < r; k++) {
            if (oriel_device_shared(heap, r, k))
                return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                                  "ranks %d and %d share a GPU; multicast is between GPUs", k, r);
        }
        if (oriel_device_card(heap, r)->bytes != oriel_device_card(heap, 0)->bytes)
            return oriel_fail(ORIEL_ERR_UNSUPPORTED, "the heaps of ranks 0 and %d differ in size",
                              r);
    }
    if (comm->size == 1)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "there is one rank alone");
    return ORIEL_OK;
}

static oriel_status check_gpu(const oriel_gpu *gpu)
{
    int can = 0;
    oriel_status st = oriel_cuda_check(
        oriel_cu->device_attribute(&can, CU_ATTRIBUTE_MULTICAST, gpu->device), "asking a device");

    if (st != ORIEL_OK)
        return st;
    if (!can || gpu->arch < 90)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "device %d (%s) has no multicast: that needs sm_90 or newer and an "
                          "NVSwitch",
                          gpu->ordinal, gpu->name);
    return ORIEL_OK;
}

static oriel_status check(oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;
    oriel_multicast *m = of(comm);
    cu_multicast asked;
    size_t unit = 0;
    oriel_status st = ORIEL_OK;

    if (oriel_config_number(ORIEL_OPT_MULTICAST) <= 0)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "ORIEL_MULTICAST is 0: set it to 1 on all");
    if (comm->heap.header->num_machines > 1)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "the world spans machines");
    if (devices->ranks[0].heap.handle == 0)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "with ORIEL_FABRIC=nccl the heaps are NCCL's, and "
                                                 "NCCL's to bind: see sym_multimem, or set "
                                                 "ORIEL_FABRIC=cuda");
    for (int i = 0; i < devices->num_gpus && st == ORIEL_OK; i++)
        st = check_gpu(&devices->gpus[i]);
    if (st == ORIEL_OK)
        st = check_ranks(comm);
    if (st == ORIEL_OK && !has_calls())
        st = oriel_fail(ORIEL_ERR_UNSUPPORTED, "the CUDA driver has no cuMulticastCreate: 12.1 or "
                                               "newer is needed");
    if (st != ORIEL_OK)
        return st;
    m->bytes = devices->ranks[0].heap.bytes;
    asked = properties(comm);
    st = oriel_cuda_check(oriel_cu->multicast_granularity(&unit, &asked, CU_GRANULARITY_MINIMUM),
                          "asking a device");
    if (st == ORIEL_OK && m->bytes % unit != 0)
        st = oriel_fail(ORIEL_ERR_UNSUPPORTED,
                        "heaps of %zu bytes are no multiple of the %zu that multicast needs",
                        m->bytes, unit);
    return st;
}

/* ---- making it ----------------------------------------------------------------------------- */

static oriel_status create(oriel_comm *comm)
{
    cu_multicast asked = properties(comm);
    cu_handle handle = 0;
    oriel_status st;

    if (comm->first_rank != 0)
        return ORIEL_OK;
    st = oriel_cuda_check(oriel_cu->multicast_create(&handle, &asked), "making a multicast object");
    if (st != ORIEL_OK)
        return st;
    of(comm)->handle = handle;
    return oriel_cuda_check(
        oriel_cu->mem_export(&comm->devices->multicast_fd, handle, CU_HANDLE_POSIX_FD, 0),
        "exporting a multicast object");
}

static oriel_status fetch(oriel_comm *comm)
{
    oriel_multicast *m = of(comm);
    const oriel_ticket *ticket = &comm->heap.procs[comm->heap.ranks[0].process].ticket;
    cu_handle handle = 0;
    int fd = -1;
    oriel_status st = oriel_port_fetch(ticket, DEVICE_SEGMENT_MULTICAST, comm->timeout, &fd);

    if (st != ORIEL_OK)
        return st;
    st = oriel_cuda_check(oriel_cu->mem_import(&handle, (void *)(uintptr_t)fd, CU_HANDLE_POSIX_FD),
                          "importing a multicast object");
    oriel_sys_now->close(fd);
    if (st == ORIEL_OK)
        m->handle = handle;
    return st;
}

static oriel_status add_devices(oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;
    oriel_status st = comm->first_rank != 0 ? fetch(comm) : ORIEL_OK;

    for (int i = 0; i < devices->num_gpus && st == ORIEL_OK; i++)
        st = oriel_cuda_check(oriel_cu->multicast_add(of(comm)->handle, devices->gpus[i].device),
                              "adding a device to a multicast object");
    return st;
}

/* Once all devices are added: it would wait for them. */
static oriel_status bind_heaps(oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;
    oriel_multicast *m = of(comm);
    oriel_cuda_memory memory = {.bytes = m->bytes};
    oriel_status st = ORIEL_OK;

    for (; m->num_bound < devices->num_ranks && st == ORIEL_OK; m->num_bound += st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->multicast_bind(m->handle, 0,
                                                       devices->ranks[m->num_bound].heap.handle, 0,
                                                       m->bytes, 0),
                              "binding memory to a multicast object");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->mem_reserve(&memory.base, m->bytes, 0, 0, 0),
                              "reserving addresses");
    if (st != ORIEL_OK)
        return st;
    st = oriel_cuda_check(oriel_cu->mem_map(memory.base, m->bytes, 0, m->handle, 0),
                          "mapping a multicast object");
    if (st != ORIEL_OK) {
        oriel_cu->mem_unreserve(memory.base, m->bytes);
        return st;
    }
    m->base = memory.base;
    return oriel_cuda_memory_open(&memory, devices->gpus, devices->num_gpus);
}

oriel_status oriel_multicast_open(oriel_comm *comm)
{
    static oriel_status (*const steps[])(oriel_comm *) = {check, create, add_devices, bind_heaps};
    oriel_multicast *m = of(comm);
    oriel_status st = ORIEL_OK;

    for (size_t i = 0; i < sizeof steps / sizeof *steps && st == ORIEL_OK && m->why[0] == '\0'; i++)
        st = oriel_nccl_note(comm, steps[i](comm), m->why, sizeof m->why);
    if (m->why[0] != '\0')
        oriel_multicast_close(comm);
    return st;
}

void oriel_multicast_close(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    oriel_multicast *m = of(comm);

    if (m->base != 0) {
        oriel_cu->mem_unmap(m->base, m->bytes);
        oriel_cu->mem_unreserve(m->base, m->bytes);
    }
    for (int i = 0; i < m->num_bound; i++)
        oriel_cu->multicast_unbind(m->handle, devices->ranks[i].gpu->device, 0, m->bytes);
    if (m->handle != 0)
        oriel_cu->mem_release(m->handle);
    if (devices->multicast_fd > 0)
        oriel_sys_now->close(devices->multicast_fd);
    devices->multicast_fd = 0;
    m->base = 0;
    m->handle = 0;
    m->num_bound = 0;
}
