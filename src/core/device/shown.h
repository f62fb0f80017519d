/* What ranks that are GPUs show to all others in the heap. */
#ifndef ORIEL_CORE_DEVICE_SHOWN_H
#define ORIEL_CORE_DEVICE_SHOWN_H

#include <string.h>

#include "core/world/world.h"

enum { HEAP_EXPORTS = 512, HEAP_GPU_OPTIONS = 7 };

/* The card of a rank, see world.h: written before the processes agree. */
typedef struct device_card {
    uint64_t bytes;                         /* of its heap in device memory; 0: a CPU */
    uint64_t gpu_options[HEAP_GPU_OPTIONS]; /* the same on all: see device.c */
    char gpu[16];                           /* its UUID */
    int32_t sms;                            /* its multiprocessors */
} device_card;
_Static_assert(sizeof(device_card) <= HEAP_CARD, "it is a card");

/* A mapping of a GPU's memory that its rank lets others map: see register.c. */
typedef struct heap_export {
    _Atomic uint32_t generation; /* odd: shown, even: withdrawn; 0: never used */
    _Atomic uint32_t mapped;     /* processes that have mapped this generation ... */
    _Atomic uint32_t released;   /* ... or have seen that it is withdrawn */
    uint64_t bytes;              /* of the mapping */
} heap_export;

typedef struct heap_exports {
    _Atomic uint32_t used;         /* so many of them, ever */
    heap_export all[HEAP_EXPORTS]; /* by the window's number, from 0 */
} HEAP_ALIGNED heap_exports;

extern const heap_section oriel_device_sections[];

static inline device_card *oriel_device_card(const oriel_heap *heap, int rank)
{
    return (device_card *)(void *)heap->ranks[rank].card;
}

static inline heap_exports *oriel_exports(const oriel_heap *heap, int rank)
{
    return &((heap_exports *)heap->section[SECTION_EXPORTS])[rank];
}

/* Whether two ranks have one GPU. */
static inline int oriel_device_shared(const oriel_heap *heap, int rank, int other)
{
    const device_card *card = oriel_device_card(heap, rank);

    return memcmp(card->gpu, oriel_device_card(heap, other)->gpu, sizeof card->gpu) == 0;
}

#endif
