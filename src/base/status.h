/* Status codes with a thread-local sentence. The function that first knows of a
 * failure calls oriel_fail with the cause and its values; callers pass on. */
#ifndef ORIEL_BASE_STATUS_H
#define ORIEL_BASE_STATUS_H

#include "oriel/oriel.h"

/* Records the sentence for this thread and returns `code`. */
oriel_status oriel_fail(oriel_status code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Prefixes the recorded sentence with where it happened; returns `code`. */
oriel_status oriel_fail_in(oriel_status code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
