/* EXPERIMENTAL. Opens and closes what the other files have; has run where they have. */
#include "experimental/experimental.h"

#include "base/config.h"
#include "base/sys.h"
#include "experimental/gin.h"
#include "experimental/multicast.h"
#include "experimental/via.h"

static oriel_status open_nccl(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    oriel_status st;

    if (devices->nccl == NULL)
        return ORIEL_OK;
    st = oriel_nccl_enter_all(comm);
    if (st != ORIEL_OK)
        return st;
    if (oriel_nccl_has_windows(comm))
        st = oriel_via_windows_open(comm);
    if (st == ORIEL_OK && devices->fabric->spans)
        st = oriel_gin_open(comm);
    oriel_nccl_leave_all(devices->nccl);
    return st;
}

static oriel_status open_all(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    oriel_status st = ORIEL_OK;

    devices->experimental = oriel_sys_now->alloc(sizeof *devices->experimental);
    if (devices->experimental == NULL)
        st = oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for what is experimental");
    st = oriel_comm_agree(comm, st, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    if (st == ORIEL_OK)
        st = oriel_multicast_open(comm);
    return st == ORIEL_OK ? open_nccl(comm) : st;
}

static void close_all(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    struct oriel_experimental *x = devices->experimental;

    if (x == NULL)
        return;
    oriel_multicast_close(comm);
    if (devices->nccl != NULL && oriel_nccl_is_good(devices->nccl)) {
        oriel_nccl_device_destroy(&devices->nccl->links, x->windows.made);
        oriel_gin_close(comm);
    }
    oriel_sys_now->release(x);
    devices->experimental = NULL;
}

const oriel_device_hook oriel_experimental_hook = {.open = open_all, .close = close_all};
