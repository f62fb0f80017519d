#include "core/nccl/sections.h"

const heap_section oriel_nccl_sections[] = {
    {"rounds", SECTION_ROUNDS, HEAP_OF_ALL, sizeof(heap_rounds)},
    {"votes", SECTION_VOTES, HEAP_PER_PROCESS, sizeof(heap_vote)},
    {"offers", SECTION_OFFERS, HEAP_PER_RANK, sizeof(heap_offers)},
    {"appointments", SECTION_APPOINTMENTS, HEAP_OF_ALL,
     HEAP_APPOINTMENTS * sizeof(heap_appointment)},
    {"attendances", SECTION_ATTENDANCES, HEAP_PER_RANK,
     HEAP_APPOINTMENTS * sizeof(heap_attendance)},
    {.bytes = 0}};
