#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 2304 };

const char *const oriel_log_levels[] = {
    [ORIEL_LOG_ERROR] = "error",
    [ORIEL_LOG_WARN] = "warn",
    [ORIEL_LOG_INFO] = "info",
    [ORIEL_LOG_DEBUG] = "debug",
    NULL,
};

static _Atomic int log_process = -1;
static _Atomic int log_level = ORIEL_LOG_WARN;

/* Where the text of the message starts. */
static size_t write_head(char *line, size_t bytes, enum oriel_log_level level)
{
    int process = atomic_load_explicit(&log_process, memory_order_relaxed);
    int n;

    if (process >= 0)
        n = snprintf(line, bytes, "oriel[%d]: %s: ", process, oriel_log_levels[level]);
    else
        n = snprintf(line, bytes, "oriel[pid %d]: %s: ", (int)getpid(), oriel_log_levels[level]);
    return (size_t)n;
}

/* One write for one line: lines of several processes do not mix. errno is kept,
 * so that a message about a failed call does not hide why it failed. */
void oriel_log(enum oriel_log_level level, const char *fmt, ...)
{
    int saved_errno = errno;
    char line[LINE_BYTES];
    va_list args;
    size_t used;
    ssize_t written;

    if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed))
        return;
    used = write_head(line, sizeof(line), level);
    va_start(args, fmt);
    vsnprintf(line + used, sizeof(line) - used - 1, fmt, args);
    va_end(args);
    used = strlen(line);
    line[used++] = '\n';
    written = write(STDERR_FILENO, line, used);
    (void)written; /* nowhere to report that stderr is gone */
    errno = saved_errno;
}

void oriel_log_set_process(int process_id)
{
    atomic_store_explicit(&log_process, process_id, memory_order_relaxed);
}

void oriel_log_set_level(enum oriel_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}
