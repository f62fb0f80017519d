#include "support/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void check_failed(const char *file, int line, const char *what, const char *fmt, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "%s:%d: %s: ", file, line, what);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\n");
    _exit(1);
}

void check_status(const char *file, int line, const char *call, oriel_status got, oriel_status want)
{
    if (got != want)
        check_failed(file, line, call, "%s instead of %s: %s", oriel_status_name(got),
                     oriel_status_name(want), oriel_last_error());
}

void check_says(const char *first, ...)
{
    const char *text = oriel_last_error();
    va_list args;

    va_start(args, first);
    for (const char *part = first; part != NULL; part = va_arg(args, const char *))
        CHECK(strstr(text, part) != NULL, "\"%s\" is not in \"%s\"", part, text);
    va_end(args);
}
