#include "core/world/world.h"

#include "core/world/names.h"

const heap_section oriel_world_sections[] = {
    {"processes", SECTION_PROCS, HEAP_PER_PROCESS, sizeof(heap_proc)},
    {"ranks", SECTION_RANKS, HEAP_PER_RANK, sizeof(heap_rank)},
    {"control", SECTION_CONTROL, HEAP_OF_ALL, sizeof(heap_control)},
    {"names", SECTION_NAMES, HEAP_OF_ALL, HEAP_NAMES * sizeof(heap_name)},
    {.bytes = 0}};

void oriel_world_place(oriel_heap *heap, const int *local_ranks, const int *machines, int machine,
                       int lead)
{
    heap_header *h = heap->header;
    int rank = 0;
    int last = 0;

    h->parties = 0;
    for (uint32_t p = 0; p < h->num_processes; p++) {
        heap->procs[p].first_rank = rank;
        heap->procs[p].local_ranks = local_ranks[p];
        heap->procs[p].machine = machines[p];
        for (int i = 0; i < local_ranks[p]; i++)
            heap->ranks[rank++].process = (int32_t)p;
        h->parties += machines[p] == machine;
        last = machines[p] > last ? machines[p] : last;
    }
    h->num_machines = (uint32_t)last + 1;
    h->parties += last > 0;
    h->machine = (uint32_t)machine;
    h->lead = (uint32_t)lead;
}
