#include "experimental/nccl_device.h"

#include <string.h>

struct creation {
    const nccl_device_needs *needs; /* the same for all links */
    nccl_device_comm *made;         /* by link: what NCCL fills in */
};

static nccl_result create_one(const oriel_nccl_links *links, int i, void *arg)
{
    const struct creation *c = arg;

    return links->nccl->dev_comm_create(links->links[i].comm, c->needs, &c->made[i]);
}

oriel_status oriel_nccl_device_create(const oriel_nccl_links *links, const nccl_device_needs *needs,
                                      const oriel_nccl_wait *wait, nccl_device_comm *made_p)
{
    struct creation c = {.needs = needs, .made = made_p};

    memset(made_p, 0, (size_t)links->n * sizeof *made_p);
    return oriel_nccl_links_each(links, create_one, &c, "making a device communicator", wait);
}

void oriel_nccl_device_destroy(const oriel_nccl_links *links, const nccl_device_comm *made)
{
    for (int i = 0; i < links->n; i++) {
        if (made[i].magic != NCCL_MAGIC)
            continue;
        oriel_cuda_enter(links->links[i].gpu);
        links->nccl->dev_comm_destroy(links->links[i].comm, &made[i]);
        oriel_cuda_leave();
    }
}

/* ---- GIN ----------------------------------------------------------------------------------- */

static oriel_status check_type(const nccl_library *nccl, int type)
{
    if (type == NCCL_GIN_PROXY)
        return ORIEL_OK;
    if (type == NCCL_GIN_NONE)
        return oriel_fail(
            ORIEL_ERR_UNSUPPORTED,
            "NCCL %d.%d.%d finds no GIN between all ranks: each machine needs an RDMA "
            "NIC that reaches GPU memory, or a plugin of NCCL's (NCCL_RMA_PLUGIN)",
            NCCL_PARTS(nccl->version));
    return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                      "NCCL %d.%d.%d has GIN of type %d here, kernels use the proxy's: set "
                      "NCCL_GIN_TYPE=%d on all",
                      NCCL_PARTS(nccl->version), type, (int)NCCL_GIN_PROXY);
}

oriel_status oriel_nccl_gin_check(const oriel_nccl_links *links)
{
    const nccl_library *nccl = links->nccl;
    nccl_properties properties = {
        .size = sizeof properties, .magic = NCCL_MAGIC, .version = NCCL_GIN_VERSION};
    oriel_status st = ORIEL_OK;

    if (nccl->version < NCCL_GIN_VERSION || nccl->dev_comm_create == NULL ||
        nccl->comm_properties == NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "GIN is used from NCCL 2.30.5 on; %s is %d.%d.%d",
                          nccl->file, NCCL_PARTS(nccl->version));
    for (int i = 0; i < links->n && st == ORIEL_OK; i++) {
        nccl_comm comm = links->links[i].comm;

        st = oriel_nccl_check(nccl, comm, nccl->comm_properties(comm, &properties),
                              "asking for its properties");
        if (st == ORIEL_OK)
            st = check_type(nccl, properties.gin_type);
    }
    return st;
}

/* One context is on one NIC of each rank: the order of what goes from rank to rank is kept. */
oriel_status oriel_nccl_gin_open(const oriel_nccl_links *links, int signals,
                                 const oriel_nccl_wait *wait, nccl_device_comm *made_p)
{
    nccl_gin_needs needs = {
        .first = {.size = sizeof needs, .magic = NCCL_MAGIC, .version = NCCL_GIN_VERSION},
        .contexts = 1,
        .signals = signals,
        .connection = NCCL_GIN_FULL,
        .traffic_class = NCCL_UNDEFINED,
        .strong_signals = 1,
        .va_signals = 1};
    oriel_status st = oriel_nccl_device_create(links, &needs.first, wait, made_p);

    for (int i = 0; i < links->n && st == ORIEL_OK; i++) {
        const nccl_device_comm *made = &made_p[i];

        /* What NCCL wrote is what this was made for. */
        if (made->magic != NCCL_MAGIC || made->rank != links->first + i ||
            made->size != links->size || made->gin_connections == 0 ||
            made->gin_signals != signals || made->gin_types[0] != NCCL_GIN_PROXY)
            st = oriel_fail(ORIEL_ERR_UNSUPPORTED,
                            "NCCL %d.%d.%d lays its device side out in another way than 2.30.5",
                            NCCL_PARTS(links->nccl->version));
    }
    return st;
}

oriel_status oriel_nccl_gin_read(const oriel_nccl_links *links, int i, const nccl_device_comm *made,
                                 nccl_window window, nccl_gin_proxy *proxy_p,
                                 nccl_gin_window *window_p)
{
    const oriel_gpu *gpu = links->links[i].gpu;
    oriel_status st =
        oriel_cuda_read(gpu, proxy_p, (cu_ptr)(uintptr_t)made->gin_contexts[0], sizeof *proxy_p);

    if (st == ORIEL_OK)
        st = oriel_cuda_read(gpu, window_p, (cu_ptr)(uintptr_t)window, sizeof *window_p);
    if (st == ORIEL_OK &&
        (proxy_p->ranks != links->size || proxy_p->queue_size == 0 || window_p->handles[0] == 0))
        st = oriel_fail(ORIEL_ERR_UNSUPPORTED,
                        "NCCL %d.%d.%d describes GIN's queues in another way than 2.30.5",
                        NCCL_PARTS(links->nccl->version));
    return st;
}
