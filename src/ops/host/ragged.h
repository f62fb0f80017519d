/* ragged_all_to_all: rows whose numbers differ between members, so that nothing
 * of them is in the record; sender and receiver find out here whether they mean
 * the same. */
#ifndef ORIEL_OPS_HOST_RAGGED_H
#define ORIEL_OPS_HOST_RAGGED_H

#include "ops/host/request.h"

/* What a sender says of one slice; the first bytes of what it sends to a member
 * are one for each slice. */
typedef struct ragged_slice {
    int64_t rows;
    int64_t offset; /* row of the receiver's `recv` */
} ragged_slice;

/* What is wrong between two members, in words for oriel_ragged_refuse. */
typedef struct ragged_fault {
    int from;
    oriel_status code;
    char text[HEAP_TEXT];
} ragged_fault;

oriel_status oriel_ragged_check(const oriel_op *op, int n);
/* Bytes that this member sends in all, and on average to one member. */
size_t oriel_ragged_sent(const oriel_op *op, int n);
static inline size_t oriel_ragged_weight(const oriel_op *op, int n)
{
    return oriel_ragged_sent(op, n) / (size_t)n;
}
/* A copy of the arrays in one allocation, `*ragged` pointing into it; NULL: no
 * memory. */
void *oriel_ragged_copy(oriel_ragged *ragged, int n);

/* Staged. What goes to one member is a stream: the slices, then their rows. */
size_t oriel_ragged_stream(const oriel_op *op, int to);
/* Copies bytes [at, at + len) of the stream to `to`, as far as there are so many; past
 * the caches if `stream`. */
void oriel_ragged_put(const oriel_op *op, int to, size_t at, char *dst, size_t len, int stream);
/* The other way; ORIEL_ERR_REVOKED when a slice is not what this member expects:
 * the operation is then revoked. */
oriel_status oriel_ragged_take(oriel_request *request, int from, size_t at, const char *src,
                               size_t len, int stream);
/* What the member sends to itself, also as the group's only one. */
oriel_status oriel_ragged_self(oriel_request *request, int stream);
/* Direct. All that `from` sends to `to`, in any of the members' threads; fills the
 * fault where they do not mean the same. */
oriel_status oriel_ragged_move(const oriel_request *request, int from, int to, ragged_fault *fault);
/* Looks at a slice that `from` sends to `to`, which expects so many rows and has
 * `recv_rows` of them; fills the fault where it is disappointed. */
oriel_status oriel_ragged_compare(const oriel_group *group, int from, int to, int k,
                                  ragged_slice slice, int64_t expected, size_t recv_rows,
                                  ragged_fault *fault);
/* Revokes the operation on all members; ORIEL_ERR_REVOKED. */
oriel_status oriel_ragged_refuse(const oriel_request *request, const ragged_fault *fault);

/* ---- in the lane (ragged_lane.c) ------------------------------------------------------- */

enum ragged_view {
    RAGGED_FITS,  /* all rows are in the lane */
    RAGGED_PULLS, /* they are not: read each other's memory */
    RAGGED_LARGE, /* they are not: meet in a cell */
    RAGGED_WRONG  /* two do not mean the same */
};

/* Whether the members show each other in the lane what they send: follows from what
 * they must agree on. */
int oriel_ragged_lanes(const oriel_group *group, const oriel_op *op);
/* Bytes of payload that a member brings then, at most. */
size_t oriel_ragged_brings(const oriel_group *group, const oriel_seat *seat, const oriel_op *op);
/* Before arriving. */
void oriel_ragged_show(const oriel_group *group, oriel_seat *seat, uint64_t call,
                       const oriel_op *op);
/* Once all have arrived: the same on all members, fault included. */
enum ragged_view oriel_ragged_look(const oriel_group *group, const oriel_seat *seat, uint64_t call,
                                   const oriel_op *op, ragged_fault *fault);
/* RAGGED_FITS: fills `recv`. */
void oriel_ragged_see(const oriel_group *group, oriel_seat *seat, uint64_t call,
                      const oriel_op *op);
/* RAGGED_PULLS: reads what `from` has for this member. */
oriel_status oriel_ragged_pull(const oriel_request *request, int from);

#endif
