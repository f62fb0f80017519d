/* A network for NCCL's GIN without a NIC: an RMA plugin (NCCL_RMA_PLUGIN) whose ranks are
 * processes of one machine. What a NIC would do the receiving process does, in NCCL's progress
 * thread, by copies of the driver; messages go through abstract Unix sockets.
 *
 * It promises no more than NCCL's interface does: a put is acknowledged when it has arrived, and
 * one in four settles up to $GIN_TEST_DELAY_US later, whatever came after it; a strong signal waits
 * for what came before it from the same rank, a weak one for its own put; a get waits for nothing.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "gin_net.h"

enum { CONNECT_MS = 10000 };
enum { FINE = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3 };
enum { DEVICE_PROXY = 2, SIGNAL_INC = 1 };

/* ---- NCCL's side, as of 2.30 ---------------------------------------------------------------- */

typedef struct properties {
    const char *name;
    const char *pci_path;
    uint64_t guid;
    int memory, global, flush, speed, port;
    float latency;
    int comms, receives, device_type, device_version;
    struct {
        int n, devices[8];
    } parts;
    size_t most_p2p, most_collective;
    int most_requests;
    int16_t rail, plane;
} properties;

typedef struct config {
    int contexts, traffic_class, stride;
} config;

typedef struct plugin {
    const char *name;
    int (*init)(void **of, uint64_t comm, void *log);
    int (*devices)(int *n);
    int (*properties)(int device, properties *p);
    int (*listen)(void *of, int device, void *handle, void **listener);
    int (*connect)(void *of, void **handles, int n, int rank, void *listener, void **net);
    int (*context_create)(void *net, config *config, void **context);
    int (*map)(void *net, void *at, size_t bytes, int type, uint64_t flags, void **region);
    int (*map_dma)(void *net, void *at, size_t bytes, int type, uint64_t offset, int fd,
                   uint64_t flags, void **region);
    int (*unmap)(void *net, void *region);
    int (*context_destroy)(void *context);
    int (*close)(void *net);
    int (*listen_close)(void *listener);
    int (*put)(void *context, int k, uint64_t from_at, void *from, size_t bytes, uint64_t to_at,
               void *to, uint32_t rank, void **request);
    int (*put_signal)(void *context, int k, uint64_t from_at, void *from, size_t bytes,
                      uint64_t to_at, void *to, uint32_t rank, uint64_t signal_at, void *signal,
                      uint64_t value, uint32_t op, bool strong, void **request);
    int (*get)(void *context, int k, uint64_t from_at, void *from, size_t bytes, uint64_t to_at,
               void *to, uint32_t rank, void **request);
    int (*flush)(void *context, int k, void *region, uint32_t rank, void **request);
    int (*test)(void *net, void *request, int *done);
    int (*progress)(void *context);
    int (*error)(void *context, bool *is);
    int (*finalize)(void *of);
} plugin;

/* ---- the plugin ------------------------------------------------------------------------------ */

static int plugin_init(void **of, uint64_t comm, void *log)
{
    (void)comm;
    (void)log;
    *of = NULL;
    return gin_driver_open() ? FINE : SYSTEM_ERROR;
}

static int plugin_devices(int *n)
{
    *n = 1;
    return FINE;
}

static int plugin_properties(int device, properties *p)
{
    (void)device;
    *p = (properties){.name = "gin_test",
                      .guid = 1,
                      .memory = MEMORY_HOST | MEMORY_CUDA,
                      .speed = 100000,
                      .port = 1,
                      .comms = 1024,
                      .receives = 1,
                      .device_type = DEVICE_PROXY,
                      .parts = {.n = 1},
                      .most_p2p = (size_t)1 << 40,
                      .most_collective = (size_t)1 << 40,
                      .most_requests = 1,
                      .rail = -1,
                      .plane = -1};
    return FINE;
}

static void address(const char *name, struct sockaddr_un *at)
{
    memset(at, 0, sizeof *at);
    at->sun_family = AF_UNIX;
    memcpy(at->sun_path + 1, name, strnlen(name, 64));
}

struct listener {
    int fd;
};

static int plugin_listen(void *of, int device, void *handle, void **listener)
{
    static int count;
    struct listener *l = calloc(1, sizeof *l);
    struct sockaddr_un at;

    (void)of;
    (void)device;
    snprintf(handle, 64, "gin-test-%d-%d", (int)getpid(), __sync_fetch_and_add(&count, 1));
    address(handle, &at);
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0 || bind(l->fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(l->fd, RANKS) != 0)
        return SYSTEM_ERROR;
    *listener = l;
    return FINE;
}

static int plugin_listen_close(void *listener)
{
    struct listener *l = listener;

    close(l->fd);
    free(l);
    return FINE;
}

/* Lower ranks listen, higher ones call, and say who they are. */
static int meet(struct net *net, void **handles, int listener)
{
    for (int r = 0; r < net->rank; r++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un at;

        address(handles[r], &at);
        if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
            send(fd, &net->rank, sizeof net->rank, MSG_NOSIGNAL) != sizeof net->rank)
            return SYSTEM_ERROR;
        net->peers[r].fd = fd;
    }
    for (int k = net->rank + 1; k < net->n; k++) {
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        int who = -1;
        int fd = poll(&wait, 1, CONNECT_MS) == 1 ? accept(listener, NULL, NULL) : -1;

        if (fd < 0 || recv(fd, &who, sizeof who, MSG_WAITALL) != sizeof who || who <= net->rank ||
            who >= net->n)
            return SYSTEM_ERROR;
        net->peers[who].fd = fd;
    }
    return FINE;
}

static int plugin_connect(void *of, void **handles, int n, int rank, void *listener, void **out)
{
    struct net *net = calloc(1, sizeof *net);

    (void)of;
    if (n > RANKS)
        return INTERNAL_ERROR;
    pthread_mutex_init(&net->lock, NULL);
    net->n = n;
    net->rank = rank;
    net->seed = (unsigned)rank + 1;
    for (int r = 0; r < n; r++) {
        net->peers[r].fd = -1;
        net->peers[r].out_end = &net->peers[r].out;
        net->peers[r].held_end = &net->peers[r].held;
    }
    if (cu.context_current(&net->context) != 0 || net->context == NULL ||
        cu.stream_create(&net->stream, 1, -5) != 0 || cu.host_alloc(&net->bounce, BOUNCE) != 0)
        return INTERNAL_ERROR;
    *out = net;
    return meet(net, handles, ((struct listener *)listener)->fd);
}

static int plugin_close(void *of)
{
    struct net *net = of;

    for (int r = 0; r < net->n; r++) {
        if (net->peers[r].fd >= 0)
            close(net->peers[r].fd);
    }
    net->n = 0; /* the rest stays: the process is about to end */
    return FINE;
}

static int plugin_context_create(void *net, config *how, void **context)
{
    (void)how;
    *context = net;
    return FINE;
}

static int plugin_context_destroy(void *context)
{
    (void)context;
    return FINE;
}

static int plugin_map(void *of, void *at, size_t bytes, int type, uint64_t flags, void **region)
{
    struct net *net = of;
    struct region *r;

    (void)bytes;
    (void)flags;
    pthread_mutex_lock(&net->lock);
    r = net->num_regions < REGIONS ? &net->regions[net->num_regions] : NULL;
    if (r != NULL)
        *r = (struct region){.at = at, .type = type, .number = net->num_regions++};
    pthread_mutex_unlock(&net->lock);
    *region = r;
    return r != NULL ? FINE : INTERNAL_ERROR;
}

static int plugin_map_dma(void *of, void *at, size_t bytes, int type, uint64_t offset, int fd,
                          uint64_t flags, void **region)
{
    (void)offset;
    (void)fd;
    return plugin_map(of, at, bytes, type, flags, region);
}

static int plugin_unmap(void *net, void *region)
{
    (void)net;
    (void)region;
    return FINE;
}

static int start(struct net *net, uint32_t rank, struct parcel *p, struct request *request,
                 void **out)
{
    if (p == NULL || request == NULL)
        return SYSTEM_ERROR;
    p->m.request = (uint64_t)(uintptr_t)request;
    *out = request;
    if ((int)rank != net->rank) {
        gin_send(&net->peers[rank], p);
        return FINE;
    }
    request->done = 1; /* to itself */
    return gin_settle(net, p) == 0 ? FINE : SYSTEM_ERROR;
}

static int plugin_put_signal(void *of, int k, uint64_t from_at, void *from, size_t bytes,
                             uint64_t to_at, void *to, uint32_t rank, uint64_t signal_at,
                             void *signal, uint64_t value, uint32_t op, bool strong, void **request)
{
    const struct region *source = from;
    const struct region *target = to;
    const struct region *raised = signal;
    struct net *net = of;
    struct message m = {.kind = PUT,
                        .region = target != NULL ? target->number : 0,
                        .at = to_at,
                        .bytes = bytes,
                        .signal = raised != NULL ? raised->number + 1 : 0,
                        .signal_at = signal_at,
                        .value = op == SIGNAL_INC ? 1 : value,
                        .strong = strong};
    struct parcel *p = gin_parcel(&m, bytes);
    int result = SYSTEM_ERROR;

    (void)k;
    pthread_mutex_lock(&net->lock);
    if (p != NULL && (bytes == 0 || gin_move(net, source, from_at, p->data, bytes, 0) == 0))
        result = start(net, rank, p, calloc(1, sizeof(struct request)), request);
    pthread_mutex_unlock(&net->lock);
    return result;
}

static int plugin_put(void *of, int k, uint64_t from_at, void *from, size_t bytes, uint64_t to_at,
                      void *to, uint32_t rank, void **request)
{
    return plugin_put_signal(of, k, from_at, from, bytes, to_at, to, rank, 0, NULL, 0, 0, false,
                             request);
}

static int plugin_get(void *of, int k, uint64_t from_at, void *from, size_t bytes, uint64_t to_at,
                      void *to, uint32_t rank, void **request)
{
    struct net *net = of;
    struct message m = {.kind = GET,
                        .region = ((const struct region *)from)->number,
                        .at = from_at,
                        .bytes = bytes};
    struct wanted *wanted = calloc(1, sizeof *wanted);
    int result;

    (void)k;
    if (wanted == NULL)
        return SYSTEM_ERROR;
    wanted->region = *(const struct region *)to;
    wanted->at = to_at;
    pthread_mutex_lock(&net->lock);
    result = start(net, rank, gin_parcel(&m, 0), &wanted->request, request);
    pthread_mutex_unlock(&net->lock);
    return result;
}

static int plugin_flush(void *of, int k, void *region, uint32_t rank, void **request)
{
    (void)of;
    (void)k;
    (void)region;
    (void)rank;
    *request = NULL; /* nothing to wait for */
    return FINE;
}

static int plugin_test(void *net, void *request, int *done)
{
    struct request *r = request;

    (void)net;
    *done = r->done;
    if (r->done)
        free(r);
    return FINE;
}

static int plugin_progress(void *of)
{
    struct net *net = of;
    int bad = 0;

    pthread_mutex_lock(&net->lock);
    for (int r = 0; r < net->n && !bad; r++) {
        struct peer *peer = &net->peers[r];

        if (peer->fd < 0)
            continue;
        bad = gin_read(net, peer) || gin_settle_due(net, peer);
        gin_write(peer);
    }
    pthread_mutex_unlock(&net->lock);
    return bad ? SYSTEM_ERROR : FINE;
}

static int plugin_error(void *context, bool *is)
{
    (void)context;
    *is = false;
    return FINE;
}

static int plugin_finalize(void *of)
{
    (void)of;
    return FINE;
}

__attribute__((visibility("default"))) const plugin ncclRmaPlugin_v14;
const plugin ncclRmaPlugin_v14 = {.name = "gin_test",
                                  .init = plugin_init,
                                  .devices = plugin_devices,
                                  .properties = plugin_properties,
                                  .listen = plugin_listen,
                                  .connect = plugin_connect,
                                  .context_create = plugin_context_create,
                                  .map = plugin_map,
                                  .map_dma = plugin_map_dma,
                                  .unmap = plugin_unmap,
                                  .context_destroy = plugin_context_destroy,
                                  .close = plugin_close,
                                  .listen_close = plugin_listen_close,
                                  .put = plugin_put,
                                  .put_signal = plugin_put_signal,
                                  .get = plugin_get,
                                  .flush = plugin_flush,
                                  .test = plugin_test,
                                  .progress = plugin_progress,
                                  .error = plugin_error,
                                  .finalize = plugin_finalize};
