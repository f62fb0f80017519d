/* Status codes with a thread-local sentence. The function that first knows of a
 * failure calls oriel_fail with the cause and its values; callers pass on.
 *
 *     oriel_status oriel_fail(oriel_status code, const char *fmt, ...)
 *         records the sentence for this thread and returns `code`
 *     oriel_status oriel_fail_in(oriel_status code, const char *fmt, ...)
 *         prefixes the recorded sentence with where it happened; returns `code`
 *
 * Both are macros for the compiler's sake: it sees that what comes back is no
 * ORIEL_OK, and so that outputs are written wherever they are read. */
#ifndef ORIEL_BASE_STATUS_H
#define ORIEL_BASE_STATUS_H

#include "oriel/oriel.h"

#define oriel_fail(code, ...)    (oriel_fail_record(__VA_ARGS__), oriel_fail_code(code))
#define oriel_fail_in(code, ...) (oriel_fail_prefix(__VA_ARGS__), oriel_fail_code(code))

void oriel_fail_record(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void oriel_fail_prefix(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static inline oriel_status oriel_fail_code(oriel_status code)
{
    return code;
}

#endif
