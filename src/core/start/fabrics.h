/* The fabrics of device memory, in order, and the one that a world takes. */
#ifndef ORIEL_CORE_START_FABRICS_H
#define ORIEL_CORE_START_FABRICS_H

#include "core/device/fabric.h"

/* NULL ends the list. */
extern const oriel_device_fabric *const oriel_device_fabrics[];

/* Local: the fabric that ORIEL_FABRIC asks for in a world on so many machines. */
oriel_status oriel_device_fabric_choose(int machines, const oriel_device_fabric **fabric_p);

#endif
