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
    switch (status) {
    case ORIEL_OK:
        return "ORIEL_OK";
    case ORIEL_IN_PROGRESS:
        return "ORIEL_IN_PROGRESS";
    case ORIEL_ERR_INVALID:
        return "ORIEL_ERR_INVALID";
    case ORIEL_ERR_MISMATCH:
        return "ORIEL_ERR_MISMATCH";
    case ORIEL_ERR_TIMEOUT:
        return "ORIEL_ERR_TIMEOUT";
    case ORIEL_ERR_PEER:
        return "ORIEL_ERR_PEER";
    case ORIEL_ERR_REVOKED:
        return "ORIEL_ERR_REVOKED";
    case ORIEL_ERR_SYSTEM:
        return "ORIEL_ERR_SYSTEM";
    case ORIEL_ERR_UNSUPPORTED:
        return "ORIEL_ERR_UNSUPPORTED";
    case ORIEL_ERR_NO_RESOURCE:
        return "ORIEL_ERR_NO_RESOURCE";
    case ORIEL_ERR_AUTH:
        return "ORIEL_ERR_AUTH";
    }
    return "unknown status";
}
