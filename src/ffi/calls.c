#include "ffi/calls.h"

#include "base/hash.h"
#include "base/sys.h"

oriel_status oriel_calls_find(oriel_calls *calls, uint64_t group, uint64_t name, int rank,
                              oriel_arrival_count **arrivals_p)
{
    oriel_arrival_count **row = &calls->rows[oriel_mix(name) % 256];
    oriel_arrival_count *found = *row;

    while (found != NULL && (found->group != group || found->name != name || found->rank != rank))
        found = found->next;
    if (found == NULL) {
        found = oriel_sys_now->alloc(sizeof *found);
        if (found == NULL)
            return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a call");
        found->group = group;
        found->name = name;
        found->rank = rank;
        found->next = *row;
        *row = found;
    }
    *arrivals_p = found;
    return ORIEL_OK;
}

void oriel_calls_free(oriel_calls *calls)
{
    for (int i = 0; i < 256; i++) {
        while (calls->rows[i] != NULL) {
            oriel_arrival_count *next = calls->rows[i]->next;

            oriel_sys_now->release(calls->rows[i]);
            calls->rows[i] = next;
        }
    }
}
