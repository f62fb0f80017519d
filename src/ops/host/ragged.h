/* ragged_all_to_all: rows whose numbers differ between members, so that nothing
 * of them is in the record; sender and receiver find out here whether they mean
 * the same. */
#ifndef ORIEL_OPS_HOST_RAGGED_H
#define ORIEL_OPS_HOST_RAGGED_H

#include "ops/host/request.h"
#include "ops/ragged.h"

/* What a sender says of one slice; the first bytes of what it sends to a member
 * are one for each slice. */
typedef struct ragged_slice {
    int64_t rows;   /* of this slice, 0 or more */
    int64_t offset; /* row of the receiver's `recv` */
} ragged_slice;

/* What is wrong between two members, in words for oriel_ragged_refuse. */
typedef struct ragged_fault {
    int from;             /* the sender, a position */
    oriel_status code;    /* of the operation, on all members */
    char text[HEAP_TEXT]; /* what oriel_last_error will say */
} ragged_fault;

/* A copy of the arrays in one allocation, `*ragged` pointing into it; NULL: no
 * memory. */
void *oriel_ragged_copy(oriel_ragged *ragged, int n);

/* Staged. Room for what the others' streams begin with. ORIEL_ERR_SYSTEM: none. */
oriel_status oriel_ragged_expect(oriel_request *request);
/* What goes to one member is a stream: the slices, then their rows. */
size_t oriel_ragged_stream(const oriel_op *op, int to);
/* Copies bytes [at, at + len) of the stream to `to`, as far as there are so many; past
 * the caches if `stream`. */
void oriel_ragged_put(const oriel_op *op, int to, size_t at, char *dst, size_t len, int stream);
/* The other way; ORIEL_ERR_REVOKED when a slice is not what this member expects:
 * the operation is then revoked. */
oriel_status oriel_ragged_take(oriel_request *request, int from, size_t at, const char *src,
                               size_t len);
/* What the member sends to itself, also as the group's only one. */
oriel_status oriel_ragged_self(oriel_request *request);
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

/* Reads what `from` has for this member out of its memory: it has shown in the lane where. */
oriel_status oriel_ragged_pull(const oriel_request *request, int from);

#endif
