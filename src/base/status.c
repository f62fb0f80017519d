#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 2048, WHERE_BYTES = 256 };

static _Thread_local char last_error[TEXT_BYTES];

/* Formats aside first: an argument may point into last_error. */
void oriel_fail_record(const char *fmt, ...)
{
    char text[TEXT_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    memcpy(last_error, text, strlen(text) + 1);
}

void oriel_fail_prefix(const char *fmt, ...)
{
    char where[WHERE_BYTES];
    va_list args;
    size_t used;

    va_start(args, fmt);
    vsnprintf(where, sizeof(where) - 2, fmt, args);
    va_end(args);
    strcat(where, ": ");
    used = strlen(where);
    memmove(last_error + used, last_error, sizeof(last_error) - used - 1);
    memcpy(last_error, where, used);
}

const char *oriel_last_error(void)
{
    return last_error;
}

const char *oriel_status_name(oriel_status status)
{
    static const char *const names[] = {
        [ORIEL_OK] = "ORIEL_OK",
        [ORIEL_IN_PROGRESS] = "ORIEL_IN_PROGRESS",
        [ORIEL_ERR_INVALID] = "ORIEL_ERR_INVALID",
        [ORIEL_ERR_MISMATCH] = "ORIEL_ERR_MISMATCH",
        [ORIEL_ERR_TIMEOUT] = "ORIEL_ERR_TIMEOUT",
        [ORIEL_ERR_PEER] = "ORIEL_ERR_PEER",
        [ORIEL_ERR_REVOKED] = "ORIEL_ERR_REVOKED",
        [ORIEL_ERR_SYSTEM] = "ORIEL_ERR_SYSTEM",
        [ORIEL_ERR_UNSUPPORTED] = "ORIEL_ERR_UNSUPPORTED",
        [ORIEL_ERR_NO_RESOURCE] = "ORIEL_ERR_NO_RESOURCE",
        [ORIEL_ERR_AUTH] = "ORIEL_ERR_AUTH",
    };

    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown status";
}
