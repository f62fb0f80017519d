#include "run/relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_BYTES = 64 << 10,
    LINE_BYTES = 16 << 20, /* a longer line is passed on in pieces */
    SINK_BYTES = 1 << 20,
    /* What a pipe or socket takes without blocking once poll() says writable. */
    WRITE_BYTES = 4096
};

/* ---- buffer ------------------------------------------------------------- */

static int buffer_reserve(oriel_buffer *buffer, size_t more)
{
    size_t capacity = buffer->capacity > 0 ? buffer->capacity : READ_BYTES;
    char *data;

    while (capacity - buffer->len < more)
        capacity *= 2;
    if (capacity == buffer->capacity)
        return 0;
    data = realloc(buffer->data, capacity);
    if (data == NULL)
        return -1;
    buffer->data = data;
    buffer->capacity = capacity;
    return 0;
}

static void buffer_drop(oriel_buffer *buffer, size_t head)
{
    memmove(buffer->data, buffer->data + head, buffer->len - head);
    buffer->len -= head;
}

static void buffer_free(oriel_buffer *buffer)
{
    free(buffer->data);
    *buffer = (oriel_buffer){0};
}

/* ---- sink --------------------------------------------------------------- */

void oriel_sink_create(int fd, oriel_sink *sink_p)
{
    struct stat st;

    *sink_p = (oriel_sink){.fd = fd, .terminal = isatty(fd)};
    sink_p->regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

void oriel_sink_destroy(oriel_sink *sink)
{
    buffer_free(&sink->queue);
}

size_t oriel_sink_pending(const oriel_sink *sink)
{
    return sink->queue.len - sink->written;
}

int oriel_sink_full(const oriel_sink *sink)
{
    return oriel_sink_pending(sink) >= SINK_BYTES;
}

static void sink_fail(oriel_sink *sink, int error)
{
    sink->error = error;
    sink->written = 0;
    buffer_free(&sink->queue);
}

void oriel_sink_put(oriel_sink *sink, const char *data, size_t len)
{
    if (sink->error != 0 || len == 0)
        return;
    if (buffer_reserve(&sink->queue, len) != 0) {
        sink_fail(sink, ENOMEM);
        return;
    }
    memcpy(sink->queue.data + sink->queue.len, data, len);
    sink->queue.len += len;
}

/* The library logs to stderr on its own: a write that ends with a line keeps
 * such a message from landing inside one of ours. */
static size_t sink_piece(const oriel_sink *sink)
{
    const char *head = sink->queue.data + sink->written;
    size_t len = oriel_sink_pending(sink);
    const char *newline;

    if (sink->regular || len <= WRITE_BYTES)
        return len;
    newline = memrchr(head, '\n', WRITE_BYTES);
    return newline != NULL ? (size_t)(newline - head) + 1 : WRITE_BYTES;
}

void oriel_sink_flush(oriel_sink *sink)
{
    ssize_t n;

    if (oriel_sink_pending(sink) == 0)
        return;
    n = write(sink->fd, sink->queue.data + sink->written, sink_piece(sink));
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            sink_fail(sink, errno);
        return;
    }
    sink->written += (size_t)n;
    /* Moving the rest down only when it is the smaller half keeps this linear. */
    if (sink->written >= sink->queue.len / 2) {
        buffer_drop(&sink->queue, sink->written);
        sink->written = 0;
    }
}

/* ---- relay -------------------------------------------------------------- */

static void log_put(oriel_log_file *log, const char *data, size_t len)
{
    while (log->fd >= 0 && len > 0) {
        ssize_t n = write(log->fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            log->error = errno;
            close(log->fd);
            log->fd = -1;
            return;
        }
        data += n;
        len -= (size_t)n;
    }
}

/* Bytes of the first line with its end, 0 when it is not complete. A carriage
 * return at the very end waits: a newline may follow it. */
static size_t line_bytes(const oriel_relay *relay, const char *data, size_t len)
{
    const char *newline = memchr(data, '\n', len);
    const char *cr;

    if (relay->sink->terminal) {
        size_t before = newline != NULL ? (size_t)(newline - data) : len;

        cr = memchr(data, '\r', before);
        if (cr != NULL && cr + 1 < data + before)
            return (size_t)(cr - data) + 1;
    }
    return newline != NULL ? (size_t)(newline - data) + 1 : 0;
}

static void pass_line(oriel_relay *relay, const char *data, size_t len)
{
    oriel_sink_put(relay->sink, relay->tag, strlen(relay->tag));
    oriel_sink_put(relay->sink, data, len);
    log_put(relay->log, data, len);
}

/* What the process left unfinished. Another process's tag must not follow it on
 * the same line; without tags the bytes stay what they are. */
static void pass_rest(oriel_relay *relay)
{
    if (relay->line.len == 0)
        return;
    pass_line(relay, relay->line.data, relay->line.len);
    if (relay->tag[0] != '\0')
        oriel_sink_put(relay->sink, "\n", 1);
    relay->line.len = 0;
}

/* Passes on the complete lines; bytes before `seen` are known to hold no
 * newline, so a long line is not searched again with each piece. */
static void pass_lines(oriel_relay *relay, size_t seen)
{
    oriel_buffer *line = &relay->line;
    size_t head = 0;
    size_t len;

    if (!relay->sink->terminal && memchr(line->data + seen, '\n', line->len - seen) == NULL)
        return;
    while ((len = line_bytes(relay, line->data + head, line->len - head)) > 0) {
        pass_line(relay, line->data + head, len);
        head += len;
    }
    buffer_drop(line, head);
}

enum oriel_relay_state oriel_relay_read(oriel_relay *relay)
{
    oriel_buffer *line = &relay->line;
    size_t seen;
    ssize_t n;

    if (relay->fd < 0)
        return ORIEL_RELAY_ENDED;
    if (line->len >= LINE_BYTES || buffer_reserve(line, READ_BYTES) != 0) {
        pass_rest(relay);
        if (buffer_reserve(line, READ_BYTES) != 0) {
            oriel_relay_close(relay);
            return ORIEL_RELAY_ENDED;
        }
    }
    n = read(relay->fd, line->data + line->len, READ_BYTES);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return ORIEL_RELAY_EMPTY;
    if (n <= 0) {
        oriel_relay_close(relay);
        return ORIEL_RELAY_ENDED;
    }
    seen = line->len;
    line->len += (size_t)n;
    pass_lines(relay, seen);
    return ORIEL_RELAY_MORE;
}

void oriel_relay_close(oriel_relay *relay)
{
    pass_rest(relay);
    buffer_free(&relay->line);
    if (relay->fd >= 0)
        close(relay->fd);
    relay->fd = -1;
}
