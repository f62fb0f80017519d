/* NCCL's GIN: kernels put, get and signal over the network. Of its kinds the proxy's is used,
 * whose queues can be described without NCCL's headers, and looked at with a deadline. */
#ifndef ORIEL_FABRIC_NCCL_GIN_H
#define ORIEL_FABRIC_NCCL_GIN_H

#include "fabric/nccl/device.h"
#include "fabric/nccl/links.h"

/* Local: whether there is one between all ranks; a failure is a sentence that says what lacks. */
oriel_status oriel_nccl_gin_check(const oriel_nccl_links *links);
/* Collective over all ranks: made_p[i] is the device side of link i, with so many signals. From
 * then on a thread of NCCL's turns for each link. */
oriel_status oriel_nccl_gin_open(oriel_nccl_links *links, int signals, const oriel_nccl_wait *wait,
                                 nccl_device_comm *made_p);
/* Local: reads what kernels need of link i, and of its window. */
oriel_status oriel_nccl_gin_read(const oriel_nccl_links *links, int i, const nccl_device_comm *made,
                                 nccl_window window, nccl_gin_proxy *proxy_p,
                                 nccl_gin_window *window_p);

#endif
