/* A person's kernel on a stream. Its operands are copied to the rank's arena, which all
 * members have mapped, and its results from there: so peers never touch a caller's buffers,
 * and addresses do not change from call to call. On the stream, in this order:
 *   operands into the arena, the board cleared
 *   a meeting: all boards are clear, all operands there, all ask for the same
 *   the kernel, which meets the others before its body and after it
 *   oriel_finish: results out of the arena, or poisoned
 * A rank's calls are in order, so one arena serves all: when the kernel has ended, nobody
 * touches it before the next meeting. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "core/device.h"
#include "ops/cuda/launch.h"
#include "ops/reduce.h"

/* The arena: the board and two words of the kernel, frames, then buffers. */
enum { SYNC_AT = 2048, ERROR_AT = 2056, FRAMES_AT = 4096, BUFFERS_AT = 4 << 20, LINE = 256 };
_Static_assert(ORIEL_BOARD_BYTES(DEVICE_RANKS) <= SYNC_AT, "the board has room");
_Static_assert(sizeof(device_call) + sizeof(device_results) <= 4096, "parameters of a kernel");
_Static_assert((int)DEVICE_RESULTS >= (int)KERNEL_MAX_BUFFERS, "every result is finished");

enum { MOST_GPUS = 64 };

struct loaded {
    cu_function function; /* NULL: not yet */
    unsigned threads;
};

struct image {
    uint64_t hash;
    char name[64];
    void *data;
    struct loaded loaded[MOST_GPUS]; /* by the device's number */
    struct image *next;
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

    if (kernel->op != NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "op %s: host functions do not run on GPUs yet",
                          kernel->name);
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

static oriel_device_rank *self_of(const oriel_comm *comm, int rank)
{
    oriel_devices *devices = comm->devices;

    return &devices->ranks[rank - comm->first_rank];
}

static size_t bytes_of(const kernel_buffer *buffer)
{
    return buffer->count << oriel_dtype_shift(buffer->dtype);
}

static cu_ptr arena_of(const oriel_comm *comm, int rank)
{
    const oriel_devices *devices = comm->devices;

    return devices->heaps[rank] + devices->arena_at;
}

/* The same on all members, who have the same shapes. */
static oriel_status lay_out(const oriel_comm *comm, oriel_kernel_call *call)
{
    const oriel_devices *devices = comm->devices;
    size_t at = BUFFERS_AT;

    for (int i = 0; i < call->num_buffers; i++) {
        call->buffers[i].at = at;
        at += (bytes_of(&call->buffers[i]) + LINE) / LINE * LINE;
    }
    if (at <= devices->arena_bytes)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_NO_RESOURCE,
                      "kernel %s needs %zu bytes for its operands and results; ORIEL_GPU_ARENA "
                      "is %zu",
                      call->kernel->name, at, devices->arena_bytes);
}

/* ---- the frame ------------------------------------------------------------------------ */

static device_frame *find_frame(const oriel_device_rank *self, const oriel_group *group,
                                const oriel_kernel_call *call)
{
    device_frame *frame = self->frames;

    while (frame != NULL && (frame->identity != call->identity || frame->group != group->hash))
        frame = frame->next;
    return frame;
}

/* Where the parts of a frame lie in it. */
struct parts {
    size_t buffers, peers, boards, values, bytes;
};

static struct parts parts_of(const oriel_kernel_call *call, int n)
{
    size_t count = (size_t)call->num_buffers;
    struct parts at;

    at.buffers = sizeof(oriel_frame);
    at.peers = at.buffers + count * sizeof(oriel_buffer);
    at.boards = at.peers + count * (size_t)n * sizeof(void *);
    at.values = at.boards + (size_t)n * sizeof(void *);
    at.bytes = (at.values + (size_t)call->num_values * sizeof(int64_t) + LINE) / LINE * LINE;
    return at;
}

static void *at_device(cu_ptr at)
{
    return (void *)(uintptr_t)at;
}

/* As the device sees it at `at`. */
static void fill_frame(const oriel_group *group, int rank, const oriel_kernel_call *call,
                       const struct parts *parts, cu_ptr at, char *out)
{
    const oriel_comm *comm = group->comm;
    cu_ptr own = arena_of(comm, rank);
    oriel_buffer *buffers = (oriel_buffer *)(void *)(out + parts->buffers);
    void **peers = (void **)(void *)(out + parts->peers);
    void **boards = (void **)(void *)(out + parts->boards);
    oriel_frame frame = {
        .rank = oriel_group_index(group, rank),
        .size = group->n,
        .num_buffers = (uint32_t)call->num_buffers,
        .buffers = at_device(at + parts->buffers),
        .boards = at_device(at + parts->boards),
        .values = at_device(at + parts->values),
        .error = at_device(own + ERROR_AT),
        .abort = at_device(self_of(comm, rank)->report_at + offsetof(device_report, abort)),
        .sync = at_device(own + SYNC_AT),
        .limit_ns = (uint64_t)(comm->timeout * 1e9)};

    memcpy(out, &frame, sizeof frame);
    for (int r = 0; r < group->n; r++)
        boards[r] = at_device(arena_of(comm, group->ranks[r]));
    for (int i = 0; i < call->num_buffers; i++) {
        size_t first = (size_t)i * (size_t)group->n;

        buffers[i] = (oriel_buffer){.bytes = bytes_of(&call->buffers[i]),
                                    .peers = at_device(at + parts->peers + 8 * first)};
        for (int r = 0; r < group->n; r++)
            peers[first + (size_t)r] =
                at_device(arena_of(comm, group->ranks[r]) + call->buffers[i].at);
    }
    memcpy(out + parts->values, call->frame.values, (size_t)call->num_values * sizeof(int64_t));
}

static oriel_status add_frame(const oriel_group *group, int rank, const oriel_kernel_call *call)
{
    oriel_device_rank *self = self_of(group->comm, rank);
    struct parts parts = parts_of(call, group->n);
    cu_ptr at = arena_of(group->comm, rank) + FRAMES_AT + self->frames_used;
    device_frame *frame;
    char *text;
    oriel_status st;

    if (FRAMES_AT + self->frames_used + parts.bytes > BUFFERS_AT)
        return oriel_fail(ORIEL_ERR_NO_RESOURCE, "too many different calls of kernels on a GPU");
    frame = oriel_sys_now->alloc(sizeof *frame);
    text = oriel_sys_now->alloc(parts.bytes);
    if (frame == NULL || text == NULL) {
        oriel_sys_now->release(frame);
        oriel_sys_now->release(text);
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a frame");
    }
    fill_frame(group, rank, call, &parts, at, text);
    st = oriel_cuda_write(self->gpu, at, text, parts.bytes);
    oriel_sys_now->release(text);
    if (st != ORIEL_OK) {
        oriel_sys_now->release(frame);
        return st;
    }
    *frame = (device_frame){
        .identity = call->identity, .group = group->hash, .at = at, .next = self->frames};
    self->frames_used += parts.bytes;
    self->frames = frame;
    return ORIEL_OK;
}

oriel_status oriel_kernel_on_prepare(oriel_group *group, int rank, oriel_kernel_call *call)
{
    const oriel_device_rank *self = self_of(group->comm, rank);
    struct loaded loaded;
    cu_context back;
    oriel_status st = lay_out(group->comm, call);

    if (st != ORIEL_OK)
        return st;
    oriel_cu->context_push(self->gpu->context);
    st = find_code(call->kernel, self->gpu, &loaded);
    oriel_cu->context_pop(&back);
    if (st == ORIEL_OK && find_frame(self, group, call) == NULL)
        st = add_frame(group, rank, call);
    return st;
}

/* ---- the call ---------------------------------------------------------------------------- */

static oriel_status copy_in(cu_ptr arena, const oriel_kernel_call *call, void *stream)
{
    cu_result result = oriel_cu->fill(arena, 0, FRAMES_AT, stream);

    for (int i = 0; i < call->num_operands && result == CU_OK; i++) {
        const kernel_buffer *buffer = &call->buffers[i];

        if (buffer->count > 0)
            result = oriel_cu->copy(arena + buffer->at, (cu_ptr)(uintptr_t)buffer->data,
                                    bytes_of(buffer), stream);
    }
    return oriel_cuda_check(result, "copying operands of a kernel");
}

static oriel_status finish(const oriel_device_rank *self, cu_ptr arena,
                           const oriel_kernel_call *call, device_call *meeting, unsigned ctas,
                           void *stream)
{
    device_results results = {.error = arena + ERROR_AT};
    void *params[] = {meeting, &results};

    for (int i = call->num_operands; i < call->num_buffers; i++) {
        const kernel_buffer *buffer = &call->buffers[i];
        device_result *result = &results.results[results.n++];

        *result = (device_result){.from = arena + buffer->at,
                                  .to = (uint64_t)(uintptr_t)buffer->data,
                                  .bytes = bytes_of(buffer)};
        oriel_poison(result->poison, sizeof result->poison / oriel_dtype_size(buffer->dtype),
                     buffer->dtype);
    }
    return oriel_cuda_check(oriel_cu->launch(self->code->finish, ctas, 1, 1, DEVICE_THREADS, 1, 1,
                                             0, stream, params, NULL),
                            "launching the end of a kernel");
}

static oriel_status put_on(oriel_group *group, int rank, oriel_kernel_call *call,
                           const struct loaded *code, void *stream)
{
    const oriel_devices *devices = group->comm->devices;
    const oriel_device_rank *self = self_of(group->comm, rank);
    const oriel_op op = {.kind = ORIEL_KIND_KERNEL, .kernel = call};
    cu_ptr arena = arena_of(group->comm, rank);
    device_frame *frame = find_frame(self, group, call);
    void *params[] = {&frame->at};
    device_call meeting = {0};
    unsigned ctas = (unsigned)devices->kernel_ctas;
    oriel_status st = copy_in(arena, call, stream);

    if (st == ORIEL_OK)
        st = oriel_launch_meeting(group, rank, &op, stream, &meeting);
    if (st == ORIEL_OK)
        st = oriel_cuda_check(oriel_cu->launch(code->function, ctas, 1, 1, code->threads, 1, 1, 0,
                                               stream, params, NULL),
                              "launching a kernel of one's own");
    return st == ORIEL_OK ? finish(self, arena, call, &meeting, ctas, stream) : st;
}

oriel_status oriel_kernel_on_launch(oriel_group *group, int rank, oriel_kernel_call *call,
                                    void *stream)
{
    oriel_comm *comm = group->comm;
    const oriel_device_rank *self = self_of(comm, rank);
    struct loaded loaded;
    cu_context back;
    oriel_status st = oriel_kernel_on_prepare(group, rank, call);

    if (st != ORIEL_OK)
        return st;
    oriel_cu->context_push(self->gpu->context);
    st = find_code(call->kernel, self->gpu, &loaded);
    if (st == ORIEL_OK)
        st = put_on(group, rank, call, &loaded, stream);
    oriel_cu->context_pop(&back);
    /* The others would wait for the rest of it. */
    if (st != ORIEL_OK && !oriel_comm_aborted(comm))
        oriel_comm_abort(comm, st, rank, comm->process, "rank %d: %s", rank, oriel_last_error());
    return st;
}
