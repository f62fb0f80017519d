/* How the data of a staged operation is best copied on this machine, found out by
 * doing it.
 *
 * Stores that stay in the caches are best where two processes share one, and worst
 * where they do not: then every line is fetched out of the other's cache. Stores
 * past the caches cost the same everywhere. The system can copy from another
 * process's memory at once, if slowly. Which processes share a cache changes
 * as they, or the virtual processors under them, are moved about. So operations of
 * one kind and size in one group try the styles there are, stay with the best, and
 * try the others again now and then. */
#ifndef ORIEL_CORE_PROTOCOL_STYLE_H
#define ORIEL_CORE_PROTOCOL_STYLE_H

#include "core/protocol/lane.h"

enum {
    STYLE_STREAM_OUT = 1, /* what others read is stored past the caches */
    STYLE_STREAM_IN = 2,  /* so is the result: tried for large ones */
    STYLE_PULL = 4,       /* alone: nothing is staged, members read the others' memory */
};

/* The style for the next operation of `group` of this kind with blocks of about so many
 * bytes; STYLE_PULL only if `pull`. */
uint32_t oriel_style_choose(const oriel_group *group, uint32_t kind, size_t bytes, int pull);
/* Whether to pull, for who asks that first and for a style of a cell later. */
int oriel_style_pulls(const oriel_group *group, uint32_t kind, size_t bytes);
/* By every member: an operation took so long. */
void oriel_style_report(const oriel_group *group, uint32_t kind, size_t bytes, uint32_t style,
                        double seconds);

/* Whether what such an operation reads and writes does not fit the cache. */
int oriel_style_overflows(const oriel_group *group, uint32_t kind, size_t bytes);
/* Whether what member `to` reads is stored past the caches in this style: who shares this
 * process's core shares all its caches. */
int oriel_style_streams(const oriel_group *group, uint32_t style, int to);

/* Payloads in lanes. Each member chooses for itself, by the call's number, so that all do alike
 * without a word about it; some calls are timed, their copies alone. */
enum { STYLE_LANE_FROM = 4 << 10 }; /* bytes */
uint32_t oriel_style_in_lane(const oriel_group *group, oriel_seat *seat, uint64_t call,
                             uint32_t kind, size_t bytes);
/* The clock of a timed call goes on, stands still, and is read. */
void oriel_style_time(oriel_seat *seat, int goes);
void oriel_style_timed(const oriel_group *group, oriel_seat *seat);

static inline uint32_t oriel_style_store(const oriel_group *group, oriel_seat *seat, uint64_t call,
                                         uint32_t kind, size_t bytes)
{
    return bytes < STYLE_LANE_FROM ? 0 : oriel_style_in_lane(group, seat, call, kind, bytes);
}

/* The payload is stored; the others' will be taken; they have been. */
static inline void oriel_style_stored(oriel_seat *seat, uint64_t call)
{
    if (seat->timed.call == call)
        oriel_style_time(seat, 0);
}

static inline void oriel_style_take(oriel_seat *seat, uint64_t call)
{
    if (seat->timed.call == call)
        oriel_style_time(seat, 1);
}

static inline void oriel_style_taken(const oriel_group *group, oriel_seat *seat, uint64_t call)
{
    if (seat->timed.call == call)
        oriel_style_timed(group, seat);
}

#endif
