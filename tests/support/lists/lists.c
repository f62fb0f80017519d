#include "support/lists/lists.h"

#include <stdlib.h>
#include <string.h>

#include "core/world/comm.h"
#include "support/check.h"

struct list {
    oriel_group *group;
    int rank, n, index;
    list_call call;
    oriel_array *arrays;
    test_buffer *send, *recv; /* in place the longer one is both */
};

list_call list_random(unsigned seed, size_t max_bytes)
{
    static const enum oriel_kind kinds[] = {ORIEL_KIND_ALL_REDUCE, ORIEL_KIND_ALL_GATHER,
                                            ORIEL_KIND_REDUCE_SCATTER, ORIEL_KIND_BROADCAST};
    static const int nums[] = {2, 3, 7, 40};
    uint64_t h = values_mix(seed, 41);
    list_call call = {.kind = kinds[h % 4],
                      .dtype = (oriel_dtype)(h / 4 % ORIEL_DTYPE_COUNT),
                      .num = h / 128 % 16 == 0 ? (int)(h / 2048 % 2) : nums[h / 2048 % 4],
                      .in_place = (int)(h / 8192 % 3),
                      .started = (int)(h / 32768 % 2),
                      .seed = seed};
    size_t most = max_bytes / oriel_dtype_size(call.dtype) / (size_t)(call.num + 1);

    call.op = values_op(call.dtype, (oriel_redop)(h / 65536 % ORIEL_REDOP_COUNT));
    call.most = most >> (h / 1048576 % 12); /* of all magnitudes alike */
    return call;
}

/* Some are empty, few are long. */
static size_t count_of(const list_call *call, int i)
{
    uint64_t h = values_mix(call->seed, 1000 + (uint64_t)i);

    if (h % 5 == 0)
        return 0;
    return values_mix(h, 1) % (call->most + 1) / (h % 3 == 0 ? 1 : 8);
}

static int root_of(const struct list *list)
{
    return (int)(list->call.seed % (unsigned)list->n);
}

static int in_place(const struct list *list, int i)
{
    return list->call.in_place == 1 || (list->call.in_place == 2 && i % 2 == 1);
}

/* Blocks that `send` and `recv` have. */
static size_t sent_blocks(const struct list *list)
{
    return list->call.kind == ORIEL_KIND_REDUCE_SCATTER ? (size_t)list->n : 1;
}

static size_t got_blocks(const struct list *list)
{
    return list->call.kind == ORIEL_KIND_ALL_GATHER ? (size_t)list->n : 1;
}

static void open_array(struct list *list, int i)
{
    size_t count = count_of(&list->call, i);
    size_t block = count * oriel_dtype_size(list->call.dtype);
    size_t sent = block * sent_blocks(list);
    size_t got = block * got_blocks(list);
    size_t own = (size_t)list->index * block;
    unsigned char *send;
    unsigned char *recv;

    list->send[i] = buffer_make(in_place(list, i) && got > sent ? got : sent, (size_t)i % 64);
    send = list->send[i].data;
    if (in_place(list, i)) {
        recv = send + (sent > got ? own : 0);
        send += got > sent ? own : 0;
    } else {
        list->recv[i] = buffer_make(got, (size_t)(3 * i) % 64);
        recv = list->recv[i].data;
    }
    values_random(send, sent, list->call.seed + 7u * (unsigned)i, list->rank);
    list->arrays[i] = (oriel_array){.send = send, .recv = recv, .count = count};
}

static void open_list(struct list *list, oriel_group *group, int rank, const list_call *call)
{
    size_t num = (size_t)call->num + 1;

    *list = (struct list){.group = group,
                          .rank = rank,
                          .n = oriel_group_size(group),
                          .index = oriel_group_index(group, rank),
                          .call = *call,
                          .arrays = calloc(num, sizeof(oriel_array)),
                          .send = calloc(num, sizeof(test_buffer)),
                          .recv = calloc(num, sizeof(test_buffer))};
    CHECK(list->arrays != NULL && list->send != NULL && list->recv != NULL, "%zu arrays", num);
    for (int i = 0; i < call->num; i++)
        open_array(list, i);
}

static void close_list(struct list *list)
{
    for (int i = 0; i < list->call.num; i++) {
        buffer_free(&list->send[i]);
        if (list->recv[i].base != NULL)
            buffer_free(&list->recv[i]);
    }
    free(list->arrays);
    free(list->send);
    free(list->recv);
}

static oriel_status run_one(const struct list *list, int i)
{
    const list_call *c = &list->call;
    const oriel_array *a = &list->arrays[i];

    switch (c->kind) {
    case ORIEL_KIND_ALL_REDUCE:
        return oriel_all_reduce(list->group, list->rank, a->send, a->recv, a->count, c->dtype,
                                c->op);
    case ORIEL_KIND_ALL_GATHER:
        return oriel_all_gather(list->group, list->rank, a->send, a->recv, a->count, c->dtype);
    case ORIEL_KIND_REDUCE_SCATTER:
        return oriel_reduce_scatter(list->group, list->rank, a->send, a->recv, a->count, c->dtype,
                                    c->op);
    default:
        return oriel_broadcast(list->group, list->rank, a->send, a->recv, a->count, c->dtype,
                               root_of(list));
    }
}

static oriel_status run_blocking(oriel_group *group, int rank, const list_call *c,
                                 const oriel_array *arrays)
{
    int root = (int)(c->seed % (unsigned)oriel_group_size(group));

    switch (c->kind) {
    case ORIEL_KIND_ALL_REDUCE:
        return oriel_all_reduce_many(group, rank, arrays, c->num, c->dtype, c->op);
    case ORIEL_KIND_ALL_GATHER:
        return oriel_all_gather_many(group, rank, arrays, c->num, c->dtype);
    case ORIEL_KIND_REDUCE_SCATTER:
        return oriel_reduce_scatter_many(group, rank, arrays, c->num, c->dtype, c->op);
    default:
        return oriel_broadcast_many(group, rank, arrays, c->num, c->dtype, root);
    }
}

static oriel_status start(oriel_group *group, int rank, const list_call *c,
                          const oriel_array *arrays, oriel_request **request_p)
{
    int root = (int)(c->seed % (unsigned)oriel_group_size(group));

    switch (c->kind) {
    case ORIEL_KIND_ALL_REDUCE:
        return oriel_all_reduce_many_start(group, rank, arrays, c->num, c->dtype, c->op, request_p);
    case ORIEL_KIND_ALL_GATHER:
        return oriel_all_gather_many_start(group, rank, arrays, c->num, c->dtype, request_p);
    case ORIEL_KIND_REDUCE_SCATTER:
        return oriel_reduce_scatter_many_start(group, rank, arrays, c->num, c->dtype, c->op,
                                               request_p);
    default:
        return oriel_broadcast_many_start(group, rank, arrays, c->num, c->dtype, root, request_p);
    }
}

/* The array of arrays may go once the call has started. */
oriel_status list_run(oriel_group *group, int rank, const list_call *call,
                      const oriel_array *arrays)
{
    size_t bytes = (size_t)call->num * sizeof *arrays;
    oriel_array *passing;
    oriel_request *request;
    oriel_status st;

    if (!call->started)
        return run_blocking(group, rank, call, arrays);
    passing = malloc(bytes + 1);
    CHECK(passing != NULL, "%d arrays", call->num);
    if (bytes > 0)
        memcpy(passing, arrays, bytes);
    st = start(group, rank, call, passing, &request);
    memset(passing, 0xee, bytes);
    free(passing);
    return st == ORIEL_OK ? oriel_request_wait(request) : st;
}

static void compare(const struct list *many, const struct list *one, int i)
{
    const list_call *c = &many->call;
    size_t bytes = many->arrays[i].count * oriel_dtype_size(c->dtype);
    long wrong =
        values_difference(many->arrays[i].recv, one->arrays[i].recv, bytes * got_blocks(many));

    if (wrong < 0 && many->recv[i].base != NULL)
        wrong = values_difference(many->send[i].data, one->send[i].data, many->send[i].bytes);
    CHECK(wrong < 0,
          "%s: rank %d, %d of %d, %s, array %d of %d with count %zu, in place %d, started %d, seed "
          "%u: byte %ld is not what it is one by one",
          oriel_kind_name(c->kind), many->rank, many->index, many->n, oriel_dtype_name(c->dtype), i,
          c->num, many->arrays[i].count, c->in_place, c->started, c->seed, wrong);
}

void list_check(oriel_group *group, int rank, const list_call *call)
{
    struct list many;
    struct list one;

    open_list(&many, group, rank, call);
    open_list(&one, group, rank, call);
    CHECK_OK(list_run(group, rank, call, many.arrays));
    for (int i = 0; i < call->num; i++) {
        CHECK_OK(run_one(&one, i));
        compare(&many, &one, i);
    }
    close_list(&many);
    close_list(&one);
}
