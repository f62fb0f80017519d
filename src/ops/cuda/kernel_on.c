/* A person's kernel on a stream. Where all members have mapped the callers' buffers it works
 * on those; otherwise on copies in the ranks' arenas, which all have mapped. That is decided
 * on the devices, in every execution. On the stream, in this order:
 *   oriel_kernel_begin: a meeting of all members, which ask for the same, which fills the frame
 *   the kernel, which copies operands in and results out if need be
 *   oriel_kernel_end: a meeting, after which nobody touches the buffers; results are poisoned
 *   if anybody failed
 * On a group that spans machines always on copies, which are all that the network reaches: the
 * members compare what they ask for as in any call there (span.c), and meet in the kernel.
 * A rank's calls are in order, so one arena serves all. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "core/device/device.h"
#include "ops/cuda/launch.h"
#include "ops/reduce/reduce.h"
#include "oriel/experimental/gin_types.h"

/* The arena: a device_arena, frames, an oriel_gin, then buffers. */
enum { FRAMES_AT = 4096, BUFFERS_AT = 4 << 20, LINE = 256 };
/* One for each member, and some to clear and fill tables with. */
enum { MEETING_THREADS = 128 };
_Static_assert((int)MEETING_THREADS >= (int)DEVICE_RANKS, "a thread speaks for each member");
_Static_assert(sizeof(device_arena) <= FRAMES_AT, "the head has room");
_Static_assert(ORIEL_BOARD_BYTES(DEVICE_RANKS) <= sizeof((device_arena *)0)->board, "the board");
_Static_assert(sizeof(device_call) + sizeof(device_begin) <= 4096, "parameters of a kernel");
_Static_assert(sizeof(device_call) + sizeof(device_end) <= 4096, "parameters of a kernel");
_Static_assert((int)DEVICE_BUFFERS >= (int)KERNEL_MAX_BUFFERS, "every buffer is shown");
_Static_assert((int)DEVICE_TROUBLE_ABORT == (int)ORIEL_TROUBLE_ABORT, "a word of the kernel");

enum { MOST_GPUS = 64 };

struct loaded {
    cu_function function; /* NULL: not yet */
    unsigned threads;     /* of a block: as many as its registers allow, DEVICE_THREADS at most */
};

struct image {
    uint64_t hash;                   /* what the kernel is known under */
    char name[64];                   /* of its function, for errors and profilers */
    void *data;                      /* the cubin, behind this struct; kept for good */
    struct loaded loaded[MOST_GPUS]; /* by the device's number */
    struct image *next;              /* NULL: the last */
};

static pthread_mutex_t images_lock = PTHREAD_MUTEX_INITIALIZER;
static struct image *images;

/* ---- the code ----------------------------------------------------------------------- */

static struct image *find_image(uint64_t hash)
{
    struct image *image = images;

    while (image != NULL && image->hash != hash)
        image = image->next;
    return image;
}

static struct image *image_new(uint64_t hash, const char *name, const void *data, size_t bytes)
{
    struct image *image = oriel_sys_now->alloc(sizeof *image + bytes);

    if (image == NULL)
        return NULL;
    image->hash = hash;
    snprintf(image->name, sizeof image->name, "%s", name);
    image->data = image + 1;
    memcpy(image->data, data, bytes);
    image->next = images;
    images = image;
    return image;
}

oriel_status oriel_kernel_on_register(uint64_t hash, const char *name, const void *image,
                                      size_t bytes)
{
    int kept;

    if (name == NULL || image == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL", name == NULL ? "name" : "image");
    pthread_mutex_lock(&images_lock);
    kept = find_image(hash) != NULL || image_new(hash, name, image, bytes) != NULL;
    pthread_mutex_unlock(&images_lock);
    return kept ? ORIEL_OK : oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for kernel %s", name);
}

/* Called with the device's context current. */
static oriel_status load(const struct image *image, struct loaded *loaded)
{
    char entry[96];
    cu_module module;
    int most = 0;
    oriel_status st = oriel_cuda_check(oriel_cu->module_load(&module, image->data, 0, NULL, NULL),
                                       "loading a kernel");

    if (st != ORIEL_OK)
        return st;
    snprintf(entry, sizeof entry, "oriel_entry_%s", image->name);
    st = oriel_cuda_check(oriel_cu->module_function(&loaded->function, module, entry),
                          "looking for its entry");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->function_load(loaded->function), "loading its entry");
    if (st == ORIEL_OK)
        st = oriel_cuda_check(
            oriel_cu->function_attribute(&most, CU_FUNCTION_MOST_THREADS, loaded->function),
            "asking how many threads it may have");
    if (st != ORIEL_OK) {
        loaded->function = NULL;
        oriel_cu->module_unload(module);
        return oriel_fail_in(st, "kernel %s", image->name);
    }
    loaded->threads = (unsigned)(most < DEVICE_THREADS ? most : DEVICE_THREADS) / 32 * 32;
    return ORIEL_OK;
}

static oriel_status find_code(const oriel_kernel *kernel, const oriel_gpu *gpu,
                              struct loaded *loaded_p)
{
    oriel_status st = ORIEL_OK;
    struct image *image;

    pthread_mutex_lock(&images_lock);
    image = find_image(kernel->hash);
    if (image == NULL || gpu->ordinal >= MOST_GPUS)
        st = oriel_fail(ORIEL_ERR_INVALID, "kernel %s has no code for GPUs", kernel->name);
    else if (image->loaded[gpu->ordinal].function == NULL)
        st = load(image, &image->loaded[gpu->ordinal]);
    if (st == ORIEL_OK)
        *loaded_p = image->loaded[gpu->ordinal];
    pthread_mutex_unlock(&images_lock);
    return st;
}

/* ---- the arena ------------------------------------------------------------------------ */

/* Where local rank `own` sees that of `rank`; 0: on another machine. */
static cu_ptr arena_of(const oriel_comm *comm, int own, int rank)
{
    cu_ptr heap = oriel_heap_seen(comm, own, rank);

    return heap != 0 ? heap + comm->devices->arena_at : 0;
}

/* A bit for each member on another machine. */
static uint64_t far_members(const oriel_group *group, int rank)
{
    uint64_t far = 0;

    for (int r = 0; r < group->n; r++)
        far |= (uint64_t)(arena_of(group->comm, rank, group->ranks[r]) == 0) << r;
    return far;
}

size_t oriel_kernel_on_lay_out(oriel_kernel_call *call)
{
    size_t at = BUFFERS_AT;

    for (int i = 0; i < call->num_buffers; i++) {
        call->buffers[i].at = at;
        at += (oriel_kernel_bytes(&call->buffers[i]) + LINE) / LINE * LINE;
    }
    return at;
}

/* ---- the caller's buffers --------------------------------------------------------------- */

static int overlap(const kernel_buffer *a, const kernel_buffer *b)
{
    uintptr_t from = (uintptr_t)a->data;
    uintptr_t to = (uintptr_t)b->data;

    return from < to + oriel_kernel_bytes(b) && to < from + oriel_kernel_bytes(a);
}

/* A kernel knows its buffers by their addresses. So what is there twice, in place, or has no
 * bytes needs addresses of its own. */
static int are_apart(const oriel_kernel_call *call)
{
    for (int i = 0; i < call->num_buffers; i++) {
        if (call->buffers[i].count == 0)
            return 0;
        for (int k = 0; k < i; k++) {
            if (overlap(&call->buffers[i], &call->buffers[k]))
                return 0;
        }
    }
    return 1;
}

/* Where other processes find them; what is new will be mapped. */
static void find_windows(const oriel_group *group, int rank, const oriel_kernel_call *call,
                         void *stream, device_buffer *buffers)
{
    for (int i = 0; i < call->num_buffers && !group->one_process; i++) {
        oriel_place place = oriel_register(group->comm, rank, call->buffers[i].data,
                                           oriel_kernel_bytes(&call->buffers[i]), stream);
        buffers[i].window = place.window;
        buffers[i].generation = place.generation;
    }
}

/* Fails where nothing is possible: what others cannot map does not fit into the arena. */
static oriel_status describe_buffers(const oriel_group *group, int rank, oriel_kernel_call *call,
                                     void *stream, device_begin *begin, uint32_t *flags_p)
{
    const oriel_devices *devices = group->comm->devices;
    size_t bytes = oriel_kernel_on_lay_out(call);
    int fits = bytes <= devices->arena_bytes;
    int direct = group->comm->heap.header->direct && are_apart(call) && !group->spans;

    begin->arena_at = devices->arena_at;
    begin->n = (uint64_t)call->num_buffers;
    begin->far = far_members(group, rank);
    if (direct)
        find_windows(group, rank, call, stream, begin->buffers);
    for (int i = 0; i < call->num_buffers; i++) {
        begin->buffers[i].address = (uint64_t)(uintptr_t)call->buffers[i].data;
        begin->buffers[i].at = call->buffers[i].at;
        direct = direct && (group->one_process || begin->buffers[i].window != 0);
    }
    if (!direct && !fits)
        return oriel_fail(ORIEL_ERR_NO_RESOURCE,
                          "kernel %s needs %zu bytes for copies of its operands and results, which "
                          "others cannot reach as they are; ORIEL_GPU_ARENA is %zu",
                          call->kernel->name, bytes, devices->arena_bytes);
    *flags_p = (direct ? DEVICE_DIRECT : 0u) | (fits ? 0u : DEVICE_NO_STAGE);
    return ORIEL_OK;
}

/* ---- the frame ------------------------------------------------------------------------ */

static device_frame *find_frame(const oriel_device_rank *self, const oriel_group *group,
                                const oriel_kernel_call *call)
{
    device_frame *frame = self->frames;

    while (frame != NULL &&
           (frame->identity != call->custom.identity || frame->group != group->hash))
        frame = frame->next;
    return frame;
}

/* Where the parts of a frame lie, so many bytes from its begin; `bytes` is its length. The word
 * that says whether it is staged comes first. */
struct parts {
    size_t buffers, peers, homes, boards, values, world, bytes;
};

static struct parts parts_of(const oriel_kernel_call *call, int n)
{
    size_t count = (size_t)call->num_buffers;
    struct parts at;

    at.buffers = LINE;
    at.peers = at.buffers + count * sizeof(oriel_buffer);
    at.homes = at.peers + count * (size_t)n * sizeof(void *);
    at.boards = at.homes + count * sizeof(void *);
    at.values = at.boards + (size_t)n * sizeof(void *);
    at.world = at.values + (size_t)call->num_values * sizeof(int64_t);
    at.bytes = (at.world + (size_t)n * sizeof(uint16_t) + LINE) / LINE * LINE;
    return at;
}

static void *at_device(cu_ptr at)
{
    return (void *)(uintptr_t)at;
}

/* The frame; and its parts as the device sees them at `at`. Where the buffers are the device
 * fills in, in each call. */
static oriel_frame fill_frame(const oriel_group *group, int rank, const oriel_kernel_call *call,
                              const struct parts *parts, cu_ptr at, char *out)
{
    const oriel_comm *comm = group->comm;
    cu_ptr own = arena_of(comm, rank, rank);
    oriel_buffer *buffers = (oriel_buffer *)(void *)(out + parts->buffers);
    void **boards = (void **)(void *)(out + parts->boards);
    uint16_t *world = (uint16_t *)(void *)(out + parts->world);

    for (int r = 0; r < group->n; r++) {
        boards[r] = at_device(arena_of(comm, rank, group->ranks[r]));
        world[r] = (uint16_t)group->ranks[r];
    }
    for (int i = 0; i < call->num_buffers; i++)
        buffers[i] = (oriel_buffer){
            .bytes = oriel_kernel_bytes(&call->buffers[i]),
            .peers = at_device(at + parts->peers + 8 * (size_t)i * (size_t)group->n)};
    memcpy(out + parts->values, call->frame.values, (size_t)call->num_values * sizeof(int64_t));
    return (oriel_frame){
        .rank = oriel_group_index(group, rank),
        .size = group->n,
        .num_buffers = (uint32_t)call->num_buffers,
        .num_operands = (uint32_t)call->num_operands,
        .buffers = at_device(at + parts->buffers),
        .boards = at_device(at + parts->boards),
        .values = at_device(at + parts->values),
        .error = at_device(own + offsetof(device_arena, error)),
        .abort = at_device(oriel_device_of(comm, rank)->report_at + offsetof(device_report, abort)),
        .gone = at_device(oriel_device_of(comm, rank)->heap.base + offsetof(device_table, error)),
        .sync = at_device(own + offsetof(device_arena, sync)),
        .limit_ns = (uint64_t)(comm->timeout * 1e9),
        .staged = at_device(at),
        .gin = group->spans ? at_device(own + ORIEL_GIN_AT) : NULL,
        .world = at_device(at + parts->world)};
}

static oriel_status add_frame(const oriel_group *group, int rank, const oriel_kernel_call *call)
{
    oriel_device_rank *self = oriel_device_of(group->comm, rank);
    struct parts parts = parts_of(call, group->n);
    cu_ptr at = arena_of(group->comm, rank, rank) + FRAMES_AT + self->frames_used;
    device_frame *frame;
    char *text;
    oriel_status st;

    if (FRAMES_AT + self->frames_used + parts.bytes > ORIEL_GIN_AT)
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "too many different calls of kernels on a GPU");
    frame = oriel_sys_now->alloc(sizeof *frame);
    text = oriel_sys_now->alloc(parts.bytes);
    if (frame == NULL || text == NULL) {
        oriel_sys_now->release(frame);
        oriel_sys_now->release(text);
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a frame");
    }
    *frame = (device_frame){.identity = call->custom.identity,
                            .group = group->hash,
                            .frame = fill_frame(group, rank, call, &parts, at, text),
                            .at = at,
                            .next = self->frames};
    st = oriel_cuda_write(self->gpu, at, text, parts.bytes);
    oriel_sys_now->release(text);
    if (st != ORIEL_OK) {
        oriel_sys_now->release(frame);
        return st;
    }
    self->frames_used += parts.bytes;
    self->frames = frame;
    return ORIEL_OK;
}

/* ---- the call ---------------------------------------------------------------------------- */

/* What the kernels of one call are launched with. */
struct plan {
    struct loaded code;  /* the kernel, in this GPU */
    device_begin begin;  /* for the kernel of the meeting before it */
    uint32_t flags;      /* DEVICE_... of that meeting */
    device_frame *frame; /* what the kernel is given; kept for the next call */
};

/* With the rank's context current. */
static oriel_status make_plan(const oriel_group *group, int rank, oriel_kernel_call *call,
                              void *stream, struct plan *plan)
{
    const oriel_device_rank *self = oriel_device_of(group->comm, rank);
    struct parts parts = parts_of(call, group->n);
    oriel_status st = describe_buffers(group, rank, call, stream, &plan->begin, &plan->flags);

    if (st == ORIEL_OK)
        st = find_code(call->kernel, self->gpu, &plan->code);
    if (st == ORIEL_OK && find_frame(self, group, call) == NULL)
        st = add_frame(group, rank, call);
    if (st != ORIEL_OK)
        return st;
    plan->frame = find_frame(self, group, call);
    plan->begin.peers = plan->frame->at + parts.peers;
    plan->begin.homes = plan->frame->at + parts.homes;
    plan->begin.staged = plan->frame->at;
    return ORIEL_OK;
}

oriel_status oriel_kernel_on_prepare(oriel_group *group, int rank, oriel_kernel_call *call,
                                     void *stream)
{
    struct plan plan = {0};
    oriel_status st;

    st = oriel_span_check(group, call);
    if (st != ORIEL_OK)
        return st;
    if (call->kernel->op != NULL)
        return oriel_op_on_prepare(group, rank, call);
    oriel_cuda_enter(oriel_device_of(group->comm, rank)->gpu);
    st = make_plan(group, rank, call, stream, &plan);
    oriel_cuda_leave();
    return st;
}

static oriel_status launch_end(const oriel_device_rank *self, cu_function function, cu_ptr arena,
                               cu_ptr staged, const oriel_kernel_call *call, device_call *meeting,
                               void *stream)
{
    device_end end = {.arena = arena, .staged = staged};
    void *params[] = {meeting, &end};

    for (int i = call->num_operands; i < call->num_buffers; i++) {
        const kernel_buffer *buffer = &call->buffers[i];
        device_result *result = &end.results[end.n++];

        result->to = (uint64_t)(uintptr_t)buffer->data;
        result->bytes = oriel_kernel_bytes(buffer);
        oriel_poison(result->poison, sizeof result->poison / oriel_dtype_size(buffer->dtype),
                     buffer->dtype);
    }
    return oriel_launch_start(self, function, 1, MEETING_THREADS, 1, params, stream);
}

/* The first two buffers need no place of their own: enter() exchanges two. */
static void show_first(const device_begin *begin, device_call *meeting)
{
    meeting->send = begin->buffers[0].address;
    meeting->send_window = begin->buffers[0].window;
    meeting->recv = begin->buffers[1].address;
    meeting->recv_window = begin->buffers[1].window;
}

/* Each may begin while the one before it ends: the meeting is but one CTA beside a small call,
 * the kernel begins when all have met, and nothing waits for others at its end. */
static oriel_status put_on(oriel_group *group, int rank, oriel_kernel_call *call, struct plan *plan,
                           void *stream)
{
    oriel_device_rank *self = oriel_device_of(group->comm, rank);
    device_call meeting = {0};
    void *begin[] = {&meeting, &plan->begin};
    void *params[] = {&plan->frame->frame};
    oriel_status st = oriel_launch_describe(group, rank, call, &meeting);

    if (st != ORIEL_OK)
        return st;
    show_first(&plan->begin, &meeting);
    meeting.flags = (meeting.flags & ~(uint32_t)DEVICE_DIRECT) | plan->flags;
    self->last_stream = stream;
    self->last_early = 0;
    if (group->spans)
        st = oriel_span_meet(group, rank, &meeting, stream);
    if (st == ORIEL_OK)
        st = oriel_launch_start(self, group->spans ? self->code->far_begin : self->code->begin, 1,
                                MEETING_THREADS, !group->spans, begin, stream);
    if (st == ORIEL_OK)
        st = oriel_launch_start(self, plan->code.function,
                                (unsigned)group->comm->devices->kernel_ctas, plan->code.threads, 1,
                                params, stream);
    return st == ORIEL_OK ? launch_end(self, group->spans ? self->code->far_end : self->code->end,
                                       arena_of(group->comm, rank, rank), plan->frame->at, call,
                                       &meeting, stream)
                          : st;
}

oriel_status oriel_kernel_on_launch(oriel_group *group, int rank, oriel_kernel_call *call,
                                    void *stream)
{
    oriel_comm *comm = group->comm;
    struct plan plan = {0};
    oriel_status st;

    st = oriel_span_check(group, call);
    if (st != ORIEL_OK)
        return st;
    if (call->kernel->op != NULL)
        return oriel_op_on_launch(group, rank, call, stream);
    oriel_cuda_enter(oriel_device_of(comm, rank)->gpu);
    st = make_plan(group, rank, call, stream, &plan);
    if (st == ORIEL_OK) {
        st = put_on(group, rank, call, &plan, stream);
        /* The others would wait for the rest of it. */
        if (st != ORIEL_OK && !oriel_comm_aborted(comm))
            oriel_comm_abort(comm, st, rank, comm->process, "rank %d: %s", rank,
                             oriel_last_error());
    }
    oriel_cuda_leave();
    return st;
}
