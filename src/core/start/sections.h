/* Which rooms have sections in a heap. */
#ifndef ORIEL_CORE_START_SECTIONS_H
#define ORIEL_CORE_START_SECTIONS_H

#include "core/heap/heap.h"

extern const heap_section *const oriel_heap_rooms[];

#endif
