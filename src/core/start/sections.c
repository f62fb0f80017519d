#include "core/start/sections.h"

#include "core/device/device.h"
#include "core/heap/pool.h"
#include "core/memory/arena.h"
#include "core/nccl/sections.h"
#include "core/protocol/cell.h"
#include "core/world/world.h"

const heap_section *const oriel_heap_rooms[] = {oriel_world_sections,
                                                oriel_protocol_sections,
                                                oriel_pool_sections,
                                                oriel_memory_sections,
                                                oriel_device_sections,
                                                oriel_nccl_sections,
                                                NULL};
