/* The fabrics of host memory, in order, and the one that a comm takes. The only file here that
 * names them. */
#include <stddef.h>

#include "base/config.h"
#include "fabric/fabric.h"

static const oriel_fabric *const fabrics[] = {&oriel_fabric_host};

oriel_status oriel_fabric_choose(int process, const oriel_fabric **fabric_p)
{
    const oriel_fabric *fabric = fabrics[0];
    const char *faults = oriel_config_string(ORIEL_OPT_FAULT);
    oriel_status st = ORIEL_OK;

    if (faults[0] != '\0') {
        st = oriel_fault_plan(fabric, faults, process);
        fabric = &oriel_fabric_fault;
    }
    if (st == ORIEL_OK)
        st = fabric->probe();
    if (st == ORIEL_OK)
        *fabric_p = fabric;
    return st;
}
