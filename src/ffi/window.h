/* What python/oriel calls for windows, beside the public header; and the custom calls
 * "oriel_store" and "oriel_load", which are of one rank alone and meet nobody:
 *   oriel_store  takes a window, a value of its shape and any number of operands more, which only
 *                order it; its result is a ticket, one element that says nothing
 *   oriel_load   takes a window and any number of operands more; its result is what the window has
 */
#ifndef ORIEL_FFI_WINDOW_H
#define ORIEL_FFI_WINDOW_H

#include "oriel/oriel.h"

struct xla_frame;

/* A window, and the memory that it lies in: that outlives the world if it must. */
typedef struct oriel_ffi_window oriel_ffi_window;

/* As oriel_window_create, on the comm that is attached. */
ORIEL_API oriel_status oriel_ffi_window_create(oriel_comm *comm, const int *ranks, int n,
                                               uint64_t bytes, oriel_ffi_window **window_p);
/* Local, by any thread at any time, also after the comm: nobody in this process uses the memory any
 * more. NULL is fine. */
ORIEL_API void oriel_ffi_window_release(oriel_ffi_window *window);
/* Where this process has the part of `rank`, and the window's number. */
ORIEL_API oriel_status oriel_ffi_window_look(const oriel_ffi_window *window, int rank, void **ptr_p,
                                             uint64_t *number_p);
/* Which window an address belongs to; another status than ORIEL_OK: none. */
ORIEL_API oriel_status oriel_ffi_window_find(const void *addr, uint64_t *number_p, int *rank_p,
                                             uint64_t *offset_p);

/* Whether every process may read the memory of every other; the sentence says why not. */
ORIEL_API oriel_status oriel_ffi_reads(void);

ORIEL_API void *oriel_ffi_store(struct xla_frame *frame);
ORIEL_API void *oriel_ffi_load(struct xla_frame *frame);

/* The caller holds the lock of attached.h. Fails unless the bytes lie in a window that the rank,
 * which is of this process, holds. */
oriel_status oriel_ffi_in_window(int rank, const void *addr, size_t bytes, const char *what);

#endif
