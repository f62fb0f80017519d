#define _GNU_SOURCE
#include "gin_net.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

struct gin_driver cu;

int gin_driver_open(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    if (library == NULL)
        return 0;
    *(void **)&cu.context_current = dlsym(library, "cuCtxGetCurrent");
    *(void **)&cu.context_push = dlsym(library, "cuCtxPushCurrent_v2");
    *(void **)&cu.context_pop = dlsym(library, "cuCtxPopCurrent_v2");
    *(void **)&cu.stream_create = dlsym(library, "cuStreamCreateWithPriority");
    *(void **)&cu.stream_sync = dlsym(library, "cuStreamSynchronize");
    *(void **)&cu.host_alloc = dlsym(library, "cuMemAllocHost_v2");
    *(void **)&cu.copy_out = dlsym(library, "cuMemcpyDtoHAsync_v2");
    *(void **)&cu.copy_in = dlsym(library, "cuMemcpyHtoDAsync_v2");
    return cu.copy_in != NULL;
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static double delay_us(struct net *net)
{
    static int most = -1;
    const char *text = getenv("GIN_TEST_DELAY_US");

    if (most < 0)
        most = text != NULL ? atoi(text) : 0;
    if (most <= 0 || rand_r(&net->seed) % 4 != 0)
        return 0.0;
    return (double)(rand_r(&net->seed) % most);
}

int gin_move(struct net *net, const struct region *region, uint64_t at, void *host, size_t bytes,
             int in)
{
    int bad = 0;

    if (region->type == MEMORY_HOST) {
        memcpy(in ? region->at + at : host, in ? host : region->at + at, bytes);
        return 0;
    }
    cu.context_push(net->context);
    for (size_t i = 0; i < bytes && !bad; i += BOUNCE) {
        size_t part = bytes - i < BOUNCE ? bytes - i : BOUNCE;
        unsigned long long device = (unsigned long long)(uintptr_t)(region->at + at + i);

        if (in) {
            memcpy(net->bounce, (char *)host + i, part);
            bad = cu.copy_in(device, net->bounce, part, net->stream);
        } else {
            bad = cu.copy_out(net->bounce, device, part, net->stream);
        }
        bad |= cu.stream_sync(net->stream);
        if (!in)
            memcpy((char *)host + i, net->bounce, part);
    }
    cu.context_pop(&(void *){NULL});
    return bad;
}

struct parcel *gin_parcel(const struct message *m, size_t bytes)
{
    struct parcel *p = calloc(1, sizeof *p + bytes);

    if (p != NULL)
        p->m = *m;
    return p;
}

static size_t payload(const struct message *m)
{
    return m->kind == PUT || m->kind == DATA ? m->bytes : 0;
}

void gin_send(struct peer *peer, struct parcel *p)
{
    *peer->out_end = p;
    peer->out_end = &p->next;
}

static void answer(struct peer *peer, enum kind kind, const struct message *to)
{
    struct message m = {.kind = kind, .request = to->request};
    struct parcel *p = gin_parcel(&m, 0);

    if (p != NULL)
        gin_send(peer, p);
}

static int raise_signal(struct net *net, const struct message *m)
{
    const struct region *region = &net->regions[m->signal - 1];
    uint64_t value = 0;

    if (gin_move(net, region, m->signal_at, &value, sizeof value, 0) != 0)
        return 1;
    value += m->value;
    return gin_move(net, region, m->signal_at, &value, sizeof value, 1);
}

int gin_settle(struct net *net, struct parcel *p)
{
    if (p->m.bytes > 0 &&
        gin_move(net, &net->regions[p->m.region], p->m.at, p->data, p->m.bytes, 1) != 0)
        return 1;
    return p->m.signal > 0 ? raise_signal(net, &p->m) : 0;
}

/* Those that are due; a strong signal is when it is the first. */
int gin_settle_due(struct net *net, struct peer *peer)
{
    struct parcel **at = &peer->held;
    double now = now_us();

    while (*at != NULL) {
        struct parcel *p = *at;
        int is_strong = p->m.signal > 0 && p->m.strong;

        if (is_strong ? p != peer->held : p->due > now) {
            at = &p->next;
            continue;
        }
        if (gin_settle(net, p) != 0)
            return 1;
        *at = p->next;
        if (*at == NULL)
            peer->held_end = at;
        free(p);
        if (is_strong)
            at = &peer->held;
    }
    return 0;
}

static int serve_get(struct net *net, struct peer *peer, const struct message *m)
{
    struct message back = {.kind = DATA, .bytes = m->bytes, .request = m->request};
    struct parcel *p = gin_parcel(&back, m->bytes);

    if (p == NULL || gin_move(net, &net->regions[m->region], m->at, p->data, m->bytes, 0) != 0)
        return 1;
    gin_send(peer, p);
    return 0;
}

static int hear(struct net *net, struct peer *peer, struct parcel *p)
{
    struct request *mine = (struct request *)(uintptr_t)p->m.request;
    int bad = 0;

    switch (p->m.kind) {
    case PUT:
        answer(peer, ACK, &p->m);
        p->due = now_us() + delay_us(net);
        *peer->held_end = p;
        peer->held_end = &p->next;
        return 0;
    case GET:
        bad = serve_get(net, peer, &p->m);
        break;
    case DATA: {
        struct wanted *wanted = (struct wanted *)(void *)mine;

        bad = gin_move(net, &wanted->region, wanted->at, p->data, p->m.bytes, 1);
        mine->done = 1;
        break;
    }
    default:
        mine->done = 1;
    }
    free(p);
    return bad;
}

int gin_read(struct net *net, struct peer *peer)
{
    for (;;) {
        struct parcel *p = peer->filling;
        char *to = p == NULL ? (char *)&peer->in + peer->got : p->data + peer->got;
        size_t whole = p == NULL ? sizeof peer->in : payload(&p->m);
        ssize_t got = whole == peer->got ? 0 : recv(peer->fd, to, whole - peer->got, MSG_DONTWAIT);

        if (whole != peer->got && got <= 0)
            return 0; /* nothing now, or gone: its requests never end */
        peer->got += (size_t)got;
        if (peer->got < whole)
            continue;
        peer->got = 0;
        if (p == NULL) {
            peer->filling = gin_parcel(&peer->in, payload(&peer->in));
            if (peer->filling == NULL)
                return 1;
            continue;
        }
        peer->filling = NULL;
        if (hear(net, peer, p) != 0)
            return 1;
    }
}

void gin_write(struct peer *peer)
{
    while (peer->out != NULL) {
        struct parcel *p = peer->out;
        size_t whole = sizeof p->m + payload(&p->m);
        int head = p->sent < sizeof p->m;
        const char *from = head ? (char *)&p->m + p->sent : p->data + p->sent - sizeof p->m;
        size_t left = head ? sizeof p->m - p->sent : whole - p->sent;
        ssize_t put = send(peer->fd, from, left, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (put <= 0)
            return;
        p->sent += (size_t)put;
        if (p->sent < whole)
            continue;
        peer->out = p->next;
        if (peer->out == NULL)
            peer->out_end = &peer->out;
        free(p);
    }
}
