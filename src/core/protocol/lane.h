/* Lanes: the short way for calls that a group's members make in one order. See
 * docs/protocol.md, and the models lane.pml (calls that need all members), lane_large.pml
 * (calls that go on in a cell) and rooted.pml (calls that need one) in tests/model. A lane is
 * memory of the heap that a group keeps: a few slots for each member, each with a word, the call's
 * record and its payload. A member arrives by one store to its own word and is done when it has
 * seen the words of all others: no table, no lock, no word that all write.
 *
 * The first call of a group meets in a cell, whose creator takes the lane. Where
 * none is free, the group goes on with cells. */
#ifndef ORIEL_CORE_PROTOCOL_LANE_H
#define ORIEL_CORE_PROTOCOL_LANE_H

#include "base/math.h"
#include "core/heap/pool.h"
#include "core/world/comm.h"
#include "core/world/record.h"

enum { LANE_SLOTS = HEAP_LANE_SLOTS, LANE_BULKS = HEAP_LANE_BULKS };

/* The payload begins on the line of the word, so that a small call costs one miss
 * for each peer. */
typedef struct lane_slot {
    _Atomic uint64_t word; /* call << 6 | lag: the member has arrived */
    uint64_t digest;       /* of the record, and of those before */
    char payload[];        /* up to LANE_SMALL bytes */
} lane_slot;

/* Payloads up to LANE_SMALL lie in the slot. Larger ones have bulks of their own, of which
 * there are fewer; what does not fit one takes several side by side. */
enum { LANE_SMALL = HEAP_LANE_SLOT - sizeof(lane_slot), LANE_TURNS_FROM = 4096 };

/* What its owner stores to in every call and others hardly ever read. */
typedef struct lane_member {
    _Atomic uint64_t done;           /* calls 1 ... done are completed by this member */
    oriel_record record[LANE_SLOTS]; /* of the last calls, by slot */
} HEAP_ALIGNED lane_member;

typedef struct heap_lane {
    _Atomic uint32_t left;             /* members whose group is gone */
    _Atomic uint64_t seal[LANE_SLOTS]; /* call << 2 | state, by slot: see lane.c */
    lane_member member[];              /* as many as the group has */
} heap_lane;

/* How a call stands in its lane. */
enum lane_view { LANE_WAITING, LANE_FULL, LANE_REVOKED, LANE_MISMATCH };

/* A member's own view of its group's lane; used by the rank's thread alone. */
struct oriel_member {
    heap_lane *lane;  /* NULL: none */
    int owner;        /* rank whose pool it is of */
    int number;       /* in that pool */
    int settled;      /* the group's first call is over: now it is known whether there is one */
    int index;        /* of this rank in the group; -1: no member */
    uint32_t n;       /* members */
    size_t bulk;      /* bytes of a place for larger payloads */
    size_t small;     /* payloads up to so many bytes need no choice: see ops/choose.h */
    uint32_t ahead;   /* bit k: call done + 2 + k is completed, done + 1 is not */
    uint64_t arrived; /* the last call this member has arrived at */
    uint64_t history; /* digest of all its calls up to there */
    uint64_t done;    /* calls 1 ... done are completed here */
    uint64_t known;   /* ... and up to here, surely, by every member */
    uint64_t bulky;   /* the last call with a payload in bulks, ... */
    uint64_t other;   /* ... the last before it that took another number of them, ... */
    uint32_t bulks;   /* ... and how many that one took */
};

/* How far a call has looked at the others. */
typedef struct lane_scan {
    int at;         /* those before have arrived with the same record */
    int end;        /* those from here on are not waited for */
    int some;       /* not all are */
    uint64_t least; /* what each of them has completed, at least */
} lane_scan;

/* Bytes of payload a member may bring; 0: the group is too large for a lane. */
size_t oriel_lane_room_for(const oriel_heap *heap, int n);
/* Under the lock of the cell that makes it: takes a lane of `rank`'s pool and
 * clears it for `n` members. -1: none. */
int oriel_lane_take(const oriel_heap *heap, int rank, int n);
/* After the group's first call. */
void oriel_lane_join(oriel_member *member, const oriel_heap *heap, int owner, int number, int n);
/* The group goes: the last member gives the lane back. */
void oriel_lane_leave(oriel_member *member, const oriel_heap *heap);

/* Whether call `s` may be written, with a payload of so many bytes: everybody has read
 * the one whose place it takes. */
int oriel_lane_free(oriel_member *member, uint64_t s, size_t bytes);
/* A member that has not read it yet, a position; -1: all have, or there is no lane. */
int oriel_lane_behind(const oriel_member *member, uint64_t s, size_t bytes);
static inline lane_slot *oriel_lane_slot(const oriel_member *member, uint64_t s, int index)
{
    char *slots = (char *)&member->lane->member[member->n];
    size_t at = (size_t)index * LANE_SLOTS + s % LANE_SLOTS;

    return (lane_slot *)(void *)(slots + at * HEAP_LANE_SLOT);
}

/* How many bulks a payload that is not small takes: one, half of them, or all. */
static inline uint32_t oriel_lane_bulks(const oriel_member *member, size_t bytes)
{
    if (bytes <= member->bulk)
        return 1;
    return bytes <= LANE_BULKS / 2 * member->bulk ? LANE_BULKS / 2 : LANE_BULKS;
}

/* Where the member at `index` keeps its payload of call `s`, if that has at most so many bytes.
 * Those that are not small and need not all of a bulk take turns in it: what others have read
 * lies in their caches and is slow to overwrite. */
static inline char *oriel_lane_payload(const oriel_member *member, uint64_t s, int index,
                                       size_t bytes)
{
    uint32_t bulks = oriel_lane_bulks(member, bytes);
    size_t at = ((size_t)index * LANE_BULKS + s * bulks % LANE_BULKS) * member->bulk;
    size_t step = oriel_round_up(bytes, HEAP_LINE);

    if (bytes <= LANE_SMALL)
        return oriel_lane_slot(member, s, index)->payload;
    if (bytes >= LANE_TURNS_FROM && bulks == 1)
        at += s / LANE_BULKS % (member->bulk / step) * step;
    return (char *)oriel_lane_slot(member, 0, (int)member->n) + at;
}

/* Arrives at `s`, payload of so many bytes in place. */
void oriel_lane_arrive(oriel_member *member, uint64_t s, const oriel_record *record, size_t bytes);
/* After arriving: looks at the members from scan->at on and stays at one that is
 * missing or differs. LANE_FULL: all members that are needed are there. If those are all
 * there are, the call is committed; ring the group, since only now is it sure that others
 * see this member's arrival. A member that needs some alone rings when it arrives, and when
 * it has completed. */
enum lane_view oriel_lane_look(oriel_member *member, uint64_t s, lane_scan *scan);
/* A member that has arrived at `s` with another record; -1: none. */
int oriel_lane_differs(const oriel_member *member, uint64_t s);
/* A member that has not arrived at `s`; -1: none. */
int oriel_lane_missing(const oriel_member *member, uint64_t s);
/* After arriving: revokes `s` unless it is committed; returns whether it is revoked. */
int oriel_lane_seal(oriel_member *member, uint64_t s);
/* Call `s` has succeeded here and its payloads are read. Returns whether somebody
 * may wait to hear so: ring the group. */
int oriel_lane_complete(oriel_member *member, uint64_t s);
/* The record with which `index` arrived at `s`. */
const oriel_record *oriel_lane_record(const oriel_member *member, uint64_t s, int index);

#endif
