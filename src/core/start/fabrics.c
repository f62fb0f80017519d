/* The fabrics of device memory, in the order in which "auto" takes them. */
#include <string.h>

#include "base/config.h"
#include "core/nccl/comm.h"
#include "core/start/fabrics.h"

const oriel_device_fabric *const oriel_device_fabrics[] = {&oriel_device_cuda, &oriel_device_span,
                                                           &oriel_device_nccl, NULL};

oriel_status oriel_device_fabric_choose(int machines, const oriel_device_fabric **fabric_p)
{
    const char *asked = oriel_config_string(ORIEL_OPT_FABRIC);

    for (const oriel_device_fabric *const *f = oriel_device_fabrics; *f != NULL; f++) {
        if ((strcmp(asked, "auto") == 0 || strcmp(asked, (*f)->name) == 0) &&
            (*f)->spans == (machines > 1)) {
            *fabric_p = *f;
            return ORIEL_OK;
        }
    }
    return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                      "ORIEL_FABRIC=%s in a world on %d machines: there the fabric is cuda within "
                      "each machine, and NCCL is between them anyway",
                      asked, machines);
}
