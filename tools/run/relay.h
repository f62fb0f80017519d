/* From the processes' pipes to our own output, in whole lines. A relay reads
 * one pipe and passes lines on, tagged, to a sink; a sink is a queue in front
 * of stdout or stderr that is written only when that cannot block, so that a
 * reader that pauses never keeps `oriel run` from its signals and deadlines. */
#ifndef ORIEL_TOOLS_RELAY_H
#define ORIEL_TOOLS_RELAY_H

#include <stddef.h>

typedef struct oriel_buffer {
    char *data;      /* NULL: nothing yet */
    size_t len;      /* bytes that count */
    size_t capacity; /* bytes there is room for */
} oriel_buffer;

typedef struct oriel_sink {
    int fd;             /* that is written to */
    int terminal;       /* a carriage return ends a line too: progress bars */
    int regular;        /* a file: a write of any length is fine */
    int error;          /* errno of the write that failed, 0 while all is well */
    size_t written;     /* bytes at the head of the queue that are out already */
    oriel_buffer queue; /* what waits to be written */
} oriel_sink;

void oriel_sink_create(int fd, oriel_sink *sink_p);
void oriel_sink_destroy(oriel_sink *sink);
void oriel_sink_put(oriel_sink *sink, const char *data, size_t len);
/* Call when poll() says that `fd` can be written. */
void oriel_sink_flush(oriel_sink *sink);
size_t oriel_sink_pending(const oriel_sink *sink);
/* Whether relays should stop reading until the sink has caught up. */
int oriel_sink_full(const oriel_sink *sink);

/* The log file of one process, shared by its two relays. */
typedef struct oriel_log_file {
    int fd;    /* -1: none */
    int error; /* errno of the write that failed, 0 while all is well */
} oriel_log_file;

typedef struct oriel_relay {
    int fd;              /* non-blocking; -1 once ended */
    oriel_sink *sink;    /* where lines go */
    oriel_log_file *log; /* a second place; NULL: none */
    char tag[16];        /* empty: lines pass unchanged */
    oriel_buffer line;   /* the unfinished one */
} oriel_relay;

enum oriel_relay_state { ORIEL_RELAY_MORE, ORIEL_RELAY_EMPTY, ORIEL_RELAY_ENDED };

/* Takes one piece from the pipe and passes on the lines it completes. EMPTY:
 * nothing is there now; ENDED: the relay has closed itself. */
enum oriel_relay_state oriel_relay_read(oriel_relay *relay);
/* Passes on an unfinished last line and closes the pipe. */
void oriel_relay_close(oriel_relay *relay);

#endif
