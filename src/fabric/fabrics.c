#include <stddef.h>

#include "fabric/fabric.h"

const oriel_fabric *const oriel_fabrics[] = {&oriel_fabric_host, NULL};
