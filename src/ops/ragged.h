/* ragged_all_to_all: rows whose numbers differ between members, so that nothing
 * of them is in the record; sender and receiver find out here whether they mean
 * the same. */
#ifndef ORIEL_OPS_RAGGED_H
#define ORIEL_OPS_RAGGED_H

#include "ops/request.h"

/* What a sender says of one slice; the first bytes of what it sends to a member
 * are one for each slice. */
typedef struct ragged_slice {
    int64_t rows;
    int64_t offset; /* row of the receiver's `recv` */
} ragged_slice;

oriel_status oriel_ragged_check(const oriel_op *op, int n);
/* Bytes that this member sends in all. */
size_t oriel_ragged_sent(const oriel_op *op, int n);
/* A copy of the arrays in one allocation, `*ragged` pointing into it; NULL: no
 * memory. */
void *oriel_ragged_copy(oriel_ragged *ragged, int n);

/* Staged. What goes to one member is a stream: the slices, then their rows. */
size_t oriel_ragged_stream(const oriel_op *op, int to);
/* Copies bytes [at, at + len) of the stream to `to`, as far as there are so many. */
void oriel_ragged_put(const oriel_op *op, int to, size_t at, char *dst, size_t len);
/* The other way; ORIEL_ERR_REVOKED when a slice is not what this member expects:
 * the operation is then revoked. */
oriel_status oriel_ragged_take(oriel_request *request, int from, size_t at, const char *src,
                               size_t len);
/* Ordered calls: the streams of all members in the lane, where they fit. Puts those of
 * this member into `room` bytes; 0: they do not fit. */
int oriel_ragged_show(const oriel_request *request, char *payload, size_t room);
/* Takes what `from` has put there; a slice that is not what this member expects
 * revokes the comm. */
oriel_status oriel_ragged_see(oriel_request *request, int from, const char *payload);
/* What the member sends to itself, also as the group's only one. */
oriel_status oriel_ragged_self(oriel_request *request);
/* Direct. All that `from` sends to `to`, in any of the members' threads; returns
 * what is wrong with it, in words that oriel_ragged_refuse takes. */
oriel_status oriel_ragged_move(const oriel_request *request, int from, int to, char *text,
                               size_t text_len);
/* Revokes the operation on all members; ORIEL_ERR_REVOKED. */
oriel_status oriel_ragged_refuse(const oriel_request *request, int from, oriel_status code,
                                 const char *text);

#endif
