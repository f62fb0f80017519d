#include "core/device/fabric.h"

#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/sys.h"
#include "core/device/share.h"
#include "core/world/names.h"
#include "fabric/cuda/nvtx.h"
#include "core/world/trace.h"

enum { ALIGN = 1 << 16, REPORT_BYTES = 1 << 10 };
_Static_assert(sizeof(device_report) <= REPORT_BYTES, "a report has a place of its own");

/* ---- what the ranks show each other --------------------------------------------------- */

const heap_section oriel_device_sections[] = {
    {"exports", SECTION_EXPORTS, HEAP_PER_RANK, sizeof(heap_exports)}, {.bytes = 0}};

enum { UUID_BYTES = sizeof(((device_card *)0)->gpu) };

int oriel_ranks_on(const oriel_comm *comm, const void *uuid)
{
    int n = 0;

    for (int r = 0; r < comm->size; r++)
        n += memcmp(oriel_device_card(&comm->heap, r)->gpu, uuid, UUID_BYTES) == 0;
    return n;
}

/* The same on all: CTAs of a kernel, such that those of all ranks of a GPU are resident
 * together: `most` of them fit on a multiprocessor. */
static int count_ctas(const oriel_comm *comm, enum oriel_option_id option, int most)
{
    int asked = (int)oriel_config_number(option);
    int ctas = DEVICE_CTAS;

    for (int r = 0; r < comm->size; r++) {
        int sms = oriel_device_card(&comm->heap, r)->sms;
        int ranks = oriel_ranks_on(comm, oriel_device_card(&comm->heap, r)->gpu);
        int here = oriel_share_ctas(sms, ranks, asked, most);

        ctas = here < ctas ? here : ctas;
    }
    return ctas;
}

static uint64_t plan_heap(oriel_devices *devices, int size)
{
    uint32_t lines = oriel_share_lines(size);
    uint64_t slots = 2ull * (uint64_t)size * DEVICE_SMALL_CTAS * lines * DEVICE_THREADS * 16;

    devices->slot_lines = lines;
    devices->slots_at = oriel_round_up(sizeof(device_table), ALIGN);
    devices->ragged_at = oriel_round_up(devices->slots_at + slots, ALIGN);
    devices->arena_at = oriel_round_up(
        devices->ragged_at + (uint64_t)size * (DEVICE_SLICES + 1) * sizeof(device_slice), ALIGN);
    devices->arena_bytes = (size_t)oriel_config_number(ORIEL_OPT_GPU_ARENA);
    devices->stage_at = oriel_round_up(devices->arena_at + devices->arena_bytes, ALIGN);
    return devices->stage_at + (uint64_t)oriel_config_number(ORIEL_OPT_GPU_STAGE);
}

/* Options that lay out the heap or say how many CTAs meet. */
static const enum oriel_option_id common_options[HEAP_GPU_OPTIONS] = {
    ORIEL_OPT_GPU_CTAS, ORIEL_OPT_GPU_KERNEL_CTAS, ORIEL_OPT_GPU_STAGE, ORIEL_OPT_GPU_ARENA,
    ORIEL_OPT_FABRIC,   ORIEL_OPT_NCCL_COMM,       ORIEL_OPT_GIN};

static void show_options(const oriel_device_fabric *chosen, device_card *shown)
{
    uint64_t fabric = 0;

    memcpy(&fabric, chosen->name, strlen(chosen->name));
    for (int i = 0; i < HEAP_GPU_OPTIONS; i++)
        shown->gpu_options[i] = common_options[i] == ORIEL_OPT_FABRIC
                                    ? fabric
                                    : (uint64_t)oriel_config_number(common_options[i]);
}

static void print_value(enum oriel_option_id option, uint64_t value, char *out, size_t len)
{
    if (option == ORIEL_OPT_FABRIC)
        snprintf(out, len, "%.*s", DEVICE_FABRIC_NAME, (const char *)&value);
    else if (oriel_config_choice(option, (int)value) != NULL)
        snprintf(out, len, "%s", oriel_config_choice(option, (int)value));
    else
        snprintf(out, len, "%llu", (unsigned long long)value);
}

static oriel_status check_options(const oriel_comm *comm)
{
    const device_card *own = oriel_device_card(&comm->heap, comm->first_rank);

    for (int i = 0; i < HEAP_GPU_OPTIONS; i++) {
        for (int r = 0; r < comm->size; r++) {
            const device_card *other = oriel_device_card(&comm->heap, r);
            char mine[24], theirs[24];
            oriel_option option;

            if (other->gpu_options[i] == own->gpu_options[i])
                continue;
            oriel_option_get(common_options[i], &option);
            print_value(common_options[i], own->gpu_options[i], mine, sizeof mine);
            print_value(common_options[i], other->gpu_options[i], theirs, sizeof theirs);
            return oriel_fail(ORIEL_ERR_MISMATCH,
                              "%s is %s on rank %d and %s on rank %d: set it alike on all",
                              option.name, mine, comm->first_rank, theirs, r);
        }
    }
    return ORIEL_OK;
}

/* ---- preparing ------------------------------------------------------------------------ */

/* The entry of the GPU `ordinal`, opened at first use. */
static oriel_status use_gpu(oriel_devices *devices, int ordinal, const oriel_gpu **gpu_p)
{
    oriel_status st;

    for (int i = 0; i < devices->num_gpus; i++) {
        if (devices->gpus[i].ordinal == ordinal) {
            *gpu_p = &devices->gpus[i];
            return ORIEL_OK;
        }
    }
    st = oriel_cuda_gpu_open(ordinal, &devices->gpus[devices->num_gpus]);
    if (st == ORIEL_OK)
        *gpu_p = &devices->gpus[devices->num_gpus++];
    return st;
}

static oriel_status make_reports(oriel_devices *devices)
{
    const oriel_gpu *gpu = devices->ranks[0].gpu;
    oriel_status st;

    oriel_cuda_enter(gpu);
    st = oriel_cuda_check(oriel_cu->host_alloc(&devices->reports,
                                               (size_t)devices->num_ranks * REPORT_BYTES,
                                               CU_HOST_PORTABLE | CU_HOST_DEVICE_MAP),
                          "allocating host memory for devices");
    oriel_cuda_leave();
    if (st != ORIEL_OK)
        return st;
    memset(devices->reports, 0, (size_t)devices->num_ranks * REPORT_BYTES);
    for (int i = 0; i < devices->num_ranks; i++)
        devices->ranks[i].report =
            (device_report *)(void *)((char *)devices->reports + (size_t)i * REPORT_BYTES);
    return ORIEL_OK;
}

/* What the rank's kernels look for in its table. */
static oriel_status fill_table(const oriel_comm *comm, oriel_device_rank *rank)
{
    uint64_t words[2] = {(uint64_t)(comm->timeout * 1e9), 0};
    cu_ptr report = 0;
    oriel_status st;

    oriel_cuda_enter(rank->gpu);
    st = oriel_cuda_check(oriel_cu->host_pointer(&report, rank->report, 0),
                          "mapping host memory for a device");
    oriel_cuda_leave();
    words[1] = rank->report_at = report;
    if (st == ORIEL_OK)
        st = oriel_cuda_write(rank->gpu, rank->heap.base + offsetof(device_table, timeout_ns),
                              words, sizeof words);
    return st;
}

static oriel_status prepare_rank(oriel_comm *comm, int local, int ordinal)
{
    oriel_devices *devices = comm->devices;
    oriel_device_rank *rank = &devices->ranks[local];
    device_card *shown = oriel_device_card(&comm->heap, comm->first_rank + local);
    oriel_status st = use_gpu(devices, ordinal, &rank->gpu);

    if (st == ORIEL_OK)
        st = oriel_device_code_load(rank->gpu, &rank->code);
    if (st == ORIEL_OK)
        st = devices->fabric->heap_create(rank->gpu, plan_heap(devices, comm->size), &rank->heap);
    if (st != ORIEL_OK)
        return st;
    memcpy(shown->gpu, rank->gpu->uuid.bytes, sizeof shown->gpu);
    shown->sms = rank->gpu->sms;
    show_options(devices->fabric, shown);
    shown->bytes = rank->heap.bytes;
    comm->heap.ranks[comm->first_rank + local].has_card = 1;
    oriel_heap_see(devices, comm->first_rank + local, rank->heap.base);
    return ORIEL_OK;
}

static oriel_devices *devices_new(const oriel_comm *comm, const oriel_device_fabric *fabric)
{
    oriel_devices *devices = oriel_sys_now->alloc(sizeof *devices);

    if (devices == NULL)
        return NULL;
    devices->fabric = fabric;
    devices->num_ranks = comm->local_ranks;
    devices->gpus = oriel_sys_now->alloc((size_t)comm->local_ranks * sizeof *devices->gpus);
    devices->ranks = oriel_sys_now->alloc((size_t)comm->local_ranks * sizeof *devices->ranks);
    devices->mapped = oriel_sys_now->alloc((size_t)comm->size * sizeof *devices->mapped);
    pthread_mutex_init(&devices->look_lock, NULL);
    return devices;
}

static const oriel_device_calls device_calls = {.look = oriel_devices_look,
                                                .revoked = oriel_devices_revoked};

oriel_status oriel_devices_prepare(oriel_comm *comm, const oriel_device_fabric *fabric,
                                   const int *ordinals)
{
    oriel_devices *devices;
    oriel_status st = ORIEL_OK;

    if (comm->size > DEVICE_RANKS)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "%d ranks on GPUs; at most %d are supported",
                          comm->size, DEVICE_RANKS);
    oriel_nvtx_open();
    devices = devices_new(comm, fabric);
    comm->devices = devices;
    atomic_store(&comm->device_calls, &device_calls);
    if (devices == NULL || devices->gpus == NULL || devices->ranks == NULL ||
        devices->mapped == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for %d devices", comm->local_ranks);
    for (int i = 0; i < comm->local_ranks && st == ORIEL_OK; i++)
        st = prepare_rank(comm, i, ordinals[i]);
    if (st == ORIEL_OK)
        st = make_reports(devices);
    for (int i = 0; i < comm->local_ranks && st == ORIEL_OK; i++)
        st = fill_table(comm, &devices->ranks[i]);
    return st;
}

/* ---- connecting ------------------------------------------------------------------------ */

/* All ranks are GPUs, or none is. */
static oriel_status check_kinds(const oriel_comm *comm)
{
    int cpu = -1;
    int gpu = -1;

    for (int r = 0; r < comm->size; r++) {
        if (oriel_device_card(&comm->heap, r)->bytes > 0)
            gpu = r;
        else
            cpu = r;
    }
    if (cpu >= 0 && gpu >= 0)
        return oriel_fail(ORIEL_ERR_MISMATCH,
                          "rank %d is a GPU and rank %d a CPU: a comm has ranks of one kind", gpu,
                          cpu);
    return ORIEL_OK;
}

/* A peer's GPU that this process sees as well must be within reach of its own. */
static oriel_status check_reach(const oriel_comm *comm, int rank)
{
    const oriel_devices *devices = comm->devices;
    const device_card *shown = oriel_device_card(&comm->heap, rank);
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < devices->num_gpus && st == ORIEL_OK; i++) {
        for (int k = 0; k < devices->num_gpus && st == ORIEL_OK; k++) {
            if (memcmp(devices->gpus[k].uuid.bytes, shown->gpu, sizeof shown->gpu) == 0)
                st = oriel_cuda_reaches(&devices->gpus[i], &devices->gpus[k]);
        }
    }
    return st;
}

/* All that this comm may have on the GPUs of this process at a time. */
static oriel_status take_room(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < devices->num_gpus && st == ORIEL_OK; i++) {
        oriel_gpu *gpu = &devices->gpus[i];

        st = oriel_room_take(gpu, devices->ctas * oriel_ranks_on(comm, gpu->uuid.bytes));
    }
    return st;
}

oriel_status oriel_devices_connect(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    oriel_status st = check_kinds(comm);

    if (st == ORIEL_OK)
        st = check_options(comm);
    if (st != ORIEL_OK)
        return st;                                           /* on all */
    devices->ctas = count_ctas(comm, ORIEL_OPT_GPU_CTAS, 2); /* as kernels.cu bounds them */
    devices->kernel_ctas = count_ctas(comm, ORIEL_OPT_GPU_KERNEL_CTAS, 1);
    devices->stage_bytes =
        oriel_share_stage((size_t)oriel_config_number(ORIEL_OPT_GPU_STAGE), devices->ctas);
    devices->one_gpu = oriel_ranks_on(comm, oriel_device_card(&comm->heap, 0)->gpu) == comm->size;
    st = take_room(comm);
    for (int r = 0; r < comm->size && st == ORIEL_OK; r++)
        st = check_reach(comm, r);
    st = devices->fabric->connect(comm, st);
    if (st == ORIEL_OK)
        st = oriel_watch_start(comm);
    return st == ORIEL_OK ? oriel_registrar_start(comm) : st;
}

uint64_t oriel_devices_layout(const oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;
    const uint64_t numbers[] = {
        (uint64_t)comm->size,    (uint64_t)comm->first_rank, (uint64_t)comm->local_ranks,
        (uint64_t)devices->ctas, (uint64_t)devices->one_gpu, comm->heap.header->direct,
        devices->slot_lines,     devices->slots_at,          devices->ragged_at,
        devices->arena_at,       devices->stage_at,          devices->stage_bytes,
    };
    uint64_t hash = oriel_hash(numbers, sizeof numbers, 1);

    for (int i = 0; i < devices->num_ranks; i++)
        hash = oriel_hash(devices->ranks[i].heaps, (size_t)comm->size * sizeof(cu_ptr), hash);
    return oriel_hash(devices->fabric->name, strlen(devices->fabric->name), hash) | 1;
}

const oriel_segment *oriel_devices_lookup(oriel_comm *comm, uint64_t id, oriel_segment *buffer)
{
    const oriel_devices *devices = comm->devices;
    uint64_t local = (id & 0xffffffff) - (uint64_t)comm->first_rank;
    uint64_t window = (id & ~DEVICE_SEGMENT) >> 32;
    const oriel_device_rank *rank;

    if (devices != NULL && id == DEVICE_SEGMENT_MULTICAST) {
        *buffer = (oriel_segment){.fd = devices->multicast_fd};
        return buffer->fd > 0 ? buffer : NULL;
    }
    if (devices == NULL || local >= (uint64_t)devices->num_ranks)
        return NULL;
    rank = &devices->ranks[local];
    *buffer = (oriel_segment){.fd = window > 0 ? oriel_export_fd(rank, window) : rank->heap.fd};
    return buffer->fd >= 0 ? buffer : NULL;
}

/* ---- failures ---------------------------------------------------------------------------- */

/* By its name, and how far it had come. */
static void describe_step(const oriel_comm *comm, const oriel_record *record, char *out, size_t len)
{
    char name[112];

    oriel_name_find(&comm->heap, record->shape, name, sizeof name);
    if (record->redop == DEVICE_STEP_BEGIN)
        snprintf(out, len, "%s", name);
    else if (record->redop == DEVICE_STEP_END)
        snprintf(out, len, "the end of %s", name);
    else
        snprintf(out, len, "barrier %d of %s", record->redop, name);
}

/* Which call of a program a record is of: its hash tells, among those that have a name. 0: that is
 * not known. */
static uint64_t find_call(oriel_comm *comm, const oriel_record *record, uint32_t hash)
{
    oriel_record guess = *record;
    uint64_t found = 0;

    if (pthread_mutex_trylock(&comm->lock) != 0)
        return 0;
    for (const oriel_group *group = comm->groups; group != NULL; group = group->next) {
        for (uint32_t i = 0; group->n == (int)record->n && i < HEAP_NAMES; i++) {
            guess.call = oriel_name_at(&comm->heap, i);
            if (guess.call != 0 && (uint32_t)oriel_hash(&guess, sizeof guess, group->hash) == hash)
                found = guess.call;
        }
    }
    pthread_mutex_unlock(&comm->lock);
    return found;
}

uint64_t oriel_device_describe(oriel_comm *comm, const device_record *from, char *out, size_t len)
{
    oriel_record record = {.bytes = from->bytes,
                           .shape = from->shape,
                           .n = from->n,
                           .kind = (uint8_t)(from->what >> 16),
                           .dtype = (uint8_t)(from->what >> 8),
                           .redop = (uint8_t)from->what};
    uint64_t call = find_call(comm, &record, from->hash);
    size_t used;

    if (record.kind == ORIEL_KIND_KERNEL)
        describe_step(comm, &record, out, len);
    else
        oriel_record_describe(&record, out, len);
    used = strlen(out);
    oriel_name_place(&comm->heap, call, out + used, len - used);
    return call;
}

/* As kernel.cuh gives the details. */
static void describe_kernel(const device_report *report, double timeout, char *out, size_t len)
{
    long long value = report->detail[1];

    switch (report->detail[0]) {
    case ORIEL_TROUBLE_LATE:
        snprintf(out, len, "did not end within %.1f s: it waits for what never comes", timeout);
        break;
    case ORIEL_TROUBLE_POINTER:
        snprintf(out, len, "asked about a pointer that is in none of its operands and results");
        break;
    case ORIEL_TROUBLE_REACH:
        snprintf(
            out, len,
            "addressed memory of rank %lld, which is on another machine: oriel_put, oriel_get, "
            "signals and barriers reach it",
            value);
        break;
    case ORIEL_TROUBLE_SPAN:
        snprintf(out, len,
                 "is on a group that spans machines: it must include "
                 "oriel/experimental/kernel_gin.h");
        break;
    case ORIEL_TROUBLE_RANK:
        snprintf(out, len, "named rank %lld of %u", value, report->mine.n);
        break;
    default:
        snprintf(out, len, "named signal %lld of %d", value, (int)ORIEL_SIGNALS);
    }
}

/* As ragged.cuh gives the details. */
static void describe_ragged(const device_report *report, int rank, char *out, size_t len)
{
    long long slice = report->detail[1];
    long long a = report->detail[2];
    long long b = report->detail[3];

    if (report->detail[0] == 1)
        snprintf(out, len, "rank %d sends %lld rows in slice %lld to rank %d, which expects %lld",
                 report->peer, a, slice, rank, b);
    else if (report->detail[0] == 2)
        snprintf(out, len, "slice %lld of rank %d, %lld rows at row %lld, is past the end of recv",
                 slice, report->peer, b, a);
    else
        snprintf(out, len, "entry %lld: %lld rows at row %lld are not in send, or one is negative",
                 slice, b, a);
}

/* A kernel of `rank` has failed first: says why. */
static void pass_on(oriel_comm *comm, int rank, const device_report *report)
{
    int peer = report->peer;
    int process = peer >= 0 ? comm->heap.ranks[peer].process : -1;
    char mine[176];
    char theirs[176];
    char last[200] = "";
    oriel_asked asked[] = {{.rank = rank, .what = mine}, {.rank = peer, .what = theirs}};

    asked[0].call = oriel_device_describe(comm, &report->mine, mine, sizeof mine);
    switch (report->error) {
    case DEVICE_LATE:
        if (peer == rank) {
            oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, rank, process,
                             "%s on rank %d: others did not map its buffers within %.1f s, and "
                             "there is no room for them in ORIEL_GPU_ARENA, which is %zu",
                             mine, rank, comm->timeout,
                             ((const oriel_devices *)comm->devices)->arena_bytes);
            break;
        }
        oriel_trace_describe(comm, peer, last, sizeof last);
        oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, peer, process,
                         "%s on rank %d: rank %d (process %d) did not come within %.1f s; %s", mine,
                         rank, peer, process, comm->timeout, last);
        break;
    case DEVICE_DIFFERENT:
        asked[1].call = oriel_device_describe(comm, &report->theirs, theirs, sizeof theirs);
        oriel_comm_abort_different(comm, &asked[0], &asked[1]);
        break;
    case DEVICE_RAGGED:
        describe_ragged(report, rank, theirs, sizeof theirs);
        oriel_comm_abort(comm, ORIEL_ERR_MISMATCH, peer, process, "%s on rank %d: %s", mine, rank,
                         theirs);
        break;
    case DEVICE_KERNEL:
        describe_kernel(report, comm->timeout, theirs, sizeof theirs);
        oriel_comm_abort(
            comm, report->detail[0] == ORIEL_TROUBLE_LATE ? ORIEL_ERR_TIMEOUT : ORIEL_ERR_INVALID,
            rank, comm->process, "%s on rank %d %s", mine, rank, theirs);
        break;
    default:
        oriel_comm_abort(comm, ORIEL_ERR_REVOKED, peer, process,
                         "%s on rank %d was revoked: rank %d had given up on it", mine, rank, peer);
    }
}

static uint32_t load_word(const uint32_t *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

int oriel_devices_revoked(const oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;

    for (int i = 0; devices != NULL && devices->reports != NULL && i < devices->num_ranks; i++) {
        if (load_word(&devices->ranks[i].report->revoked) != 0)
            return 1;
    }
    return 0;
}

void oriel_devices_look(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;

    if (devices == NULL || devices->reports == NULL)
        return;
    pthread_mutex_lock(&devices->look_lock);
    for (int i = 0; i < devices->num_ranks; i++) {
        oriel_device_rank *rank = &devices->ranks[i];

        if (!rank->reported && load_word(&rank->report->error) != DEVICE_FINE) {
            rank->reported = 1;
            pass_on(comm, comm->first_rank + i, rank->report);
        }
    }
    for (int i = 0; i < devices->num_ranks && oriel_comm_aborted(comm); i++)
        __atomic_store_n(&devices->ranks[i].report->abort, 1, __ATOMIC_RELEASE);
    devices->fabric->look(comm);
    pthread_mutex_unlock(&devices->look_lock);
}
