/* The network of gin.c: see there. */
#ifndef TESTS_FAKE_GIN_NET_H
#define TESTS_FAKE_GIN_NET_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { RANKS = 64, REGIONS = 256, BOUNCE = 1 << 20 };
enum { MEMORY_HOST = 1, MEMORY_CUDA = 2 };

/* ---- the driver -------------------------------------------------------------------------- */

struct gin_driver {
    int (*context_current)(void **context);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*stream_create)(void **stream, unsigned flags, int priority);
    int (*stream_sync)(void *stream);
    int (*host_alloc)(void **at, size_t bytes);
    int (*copy_out)(void *to, unsigned long long from, size_t bytes, void *stream);
    int (*copy_in)(unsigned long long to, const void *from, size_t bytes, void *stream);
};
extern struct gin_driver cu;

int gin_driver_open(void);

/* ---- messages ---------------------------------------------------------------------------- */

enum kind { PUT, GET, ACK, DATA };

struct message {
    uint32_t kind;
    uint32_t region, signal; /* numbers, the same on all ranks; signal: from 1, 0 is none */
    uint32_t strong;
    uint64_t at, bytes; /* of the payload, or of what is asked for */
    uint64_t signal_at, value;
    uint64_t request; /* the sender's, who alone knows what it means */
};

/* A message with its payload: on its way out, or not settled yet. */
struct parcel {
    struct parcel *next;
    struct message m;
    double due;
    size_t sent;
    char data[];
};

struct request {
    int done;
    void *to;
};

struct region {
    char *at;
    int type;
    uint32_t number;
};

struct peer {
    int fd;
    struct parcel *out, **out_end;
    struct parcel *held, **held_end; /* in the order in which they came */
    struct message in;               /* so far */
    size_t got;
    struct parcel *filling;
};

struct net {
    pthread_mutex_t lock;
    int n, rank;
    struct peer peers[RANKS];
    struct region regions[REGIONS];
    uint32_t num_regions;
    void *context, *stream, *bounce;
    unsigned seed;
};

/* What a get asked for: where to is in the request. */
struct wanted {
    struct request request;
    struct region region;
    uint64_t at;
};

/* Between a region of this process and its own memory. */
int gin_move(struct net *net, const struct region *region, uint64_t at, void *host, size_t bytes,
             int in);
struct parcel *gin_parcel(const struct message *m, size_t bytes);
void gin_send(struct peer *peer, struct parcel *p);
/* What a put does where it arrives. */
int gin_settle(struct net *net, struct parcel *p);

/* What is under way; not 0: a copy failed. */
int gin_read(struct net *net, struct peer *peer);
int gin_settle_due(struct net *net, struct peer *peer);
void gin_write(struct peer *peer);

#endif
