#include "core/world/names.h"

#include <stdio.h>

enum { WRITTEN = 1 };

/* The entry of `identity`, or a free one; NULL: the table is full. */
static heap_name *entry_of(const oriel_heap *heap, uint64_t identity)
{
    heap_name *names = heap->section[SECTION_NAMES];

    for (uint32_t i = 0; i < HEAP_NAMES; i++) {
        heap_name *entry = &names[(identity + i) % HEAP_NAMES];
        uint64_t found = atomic_load_explicit(&entry->identity, memory_order_relaxed);

        if (found == identity || found == 0)
            return entry;
    }
    return NULL;
}

int oriel_name_known(const oriel_heap *heap, uint64_t identity)
{
    const heap_name *entry = entry_of(heap, identity);

    return entry == NULL ||
           atomic_load_explicit(&entry->identity, memory_order_relaxed) == identity;
}

/* The process that takes the entry writes the text; until that is there, the name is a number. */
void oriel_name_keep(const oriel_heap *heap, uint64_t identity, const char *text)
{
    heap_name *entry;
    uint64_t none;

    do {
        entry = entry_of(heap, identity);
        if (entry == NULL || atomic_load(&entry->identity) == identity)
            return;
        none = 0;
    } while (!atomic_compare_exchange_strong(&entry->identity, &none, identity));
    snprintf(entry->text, sizeof entry->text, "%s", text);
    atomic_store_explicit(&entry->written, WRITTEN, memory_order_release);
}

void oriel_name_find(const oriel_heap *heap, uint64_t identity, char *out, size_t len)
{
    const heap_name *entry = entry_of(heap, identity);

    if (entry != NULL && atomic_load(&entry->identity) == identity &&
        atomic_load_explicit(&entry->written, memory_order_acquire) == WRITTEN)
        snprintf(out, len, "%s", entry->text);
    else
        snprintf(out, len, "kernel %016llx", (unsigned long long)identity);
}
