#include "core/device/shown.h"

#include <string.h>

const heap_section oriel_device_sections[] = {
    {"exports", SECTION_EXPORTS, HEAP_PER_RANK, sizeof(heap_exports)}, {.bytes = 0}};

int oriel_device_shared(const oriel_heap *heap, int rank, int other)
{
    const device_card *card = oriel_device_card(heap, rank);

    return memcmp(card->gpu, oriel_device_card(heap, other)->gpu, sizeof card->gpu) == 0;
}
