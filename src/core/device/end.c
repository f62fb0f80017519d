/* What comms may have on a GPU together, and how they leave it. */

#include "base/log.h"
#include "base/sys.h"
#include "core/device/fabric.h"
#include "core/world/trace.h"

/* ---- room ----------------------------------------------------------------------------------- */

/* Kernels of different comms wait for different peers: if not all find room at the same
 * time, those that do may wait for those that do not, on all ranks. */
enum { CTAS_OF_AN_SM = 2, MOST_GPUS = 64 }; /* as kernels.cu bounds them */

static pthread_mutex_t room_lock = PTHREAD_MUTEX_INITIALIZER;
static int taken[MOST_GPUS];

oriel_status oriel_room_take(oriel_gpu *gpu, int ctas)
{
    int left;

    if (gpu->ordinal >= MOST_GPUS)
        return ORIEL_OK;
    pthread_mutex_lock(&room_lock);
    left = CTAS_OF_AN_SM * gpu->sms - taken[gpu->ordinal];
    if (ctas <= left) {
        taken[gpu->ordinal] += ctas;
        gpu->room = ctas;
    }
    pthread_mutex_unlock(&room_lock);
    if (ctas <= left)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_NO_RESOURCE,
                      "device %d has room for %d thread blocks beside those of this process's "
                      "other comms, and this one may have %d at a time: set ORIEL_GPU_CTAS to less",
                      gpu->ordinal, left, ctas);
}

void oriel_room_give(oriel_gpu *gpu)
{
    pthread_mutex_lock(&room_lock);
    if (gpu->room > 0)
        taken[gpu->ordinal] -= gpu->room;
    gpu->room = 0;
    pthread_mutex_unlock(&room_lock);
}

/* ---- kernels that do not end ------------------------------------------------------------- */

uint64_t oriel_devices_progress(const oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;
    device_counts counts[DEVICE_RANKS];
    uint64_t calls = 0;

    for (int i = 0; i < devices->num_ranks; i++) {
        const oriel_device_rank *rank = &devices->ranks[i];

        if (oriel_cuda_read(rank->gpu, counts, rank->heap.base + offsetof(device_table, counts),
                            sizeof counts) != ORIEL_OK)
            continue;
        for (int r = 0; r < comm->size; r++)
            calls += counts[r].calls;
    }
    return calls;
}

/* What the others have met this rank for, if that was a person's kernel: all else has
 * deadlines. 0: it was not, or there are no others. */
static int find_kernel(oriel_comm *comm, const oriel_device_rank *rank, char *out, size_t len)
{
    device_record records[DEVICE_RANKS];

    if (oriel_cuda_read(rank->gpu, records, rank->heap.base + offsetof(device_table, record),
                        sizeof records) != ORIEL_OK)
        return 0;
    for (int r = 0; r < comm->size; r++) {
        if (records[r].call != 0 && records[r].what >> 16 == ORIEL_KIND_KERNEL) {
            oriel_device_describe(comm, &records[r], out, len);
            return 1;
        }
    }
    return 0;
}

void oriel_devices_give_up(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    char what[128];
    char last[200];

    devices->left_behind = 1;
    for (int i = 0; i < devices->num_ranks; i++) {
        int rank = comm->first_rank + i;

        if (find_kernel(comm, &devices->ranks[i], what, sizeof what))
            oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, rank, comm->process,
                             "%s on rank %d did not end within %.1f s; it is left behind", what,
                             rank, comm->timeout);
    }
    oriel_trace_describe(comm, comm->first_rank, last, sizeof last);
    oriel_comm_abort(comm, ORIEL_ERR_TIMEOUT, comm->first_rank, comm->process,
                     "what rank %d has on its GPU did not end within %.1f s; %s", comm->first_rank,
                     comm->timeout, last);
}

/* ---- waiting for all ----------------------------------------------------------------------- */

#define DRAIN_S 3.0 /* how long kernels take to end once they are told */

static void *drain_main(void *arg)
{
    oriel_devices *devices = arg;

    for (int i = 0; i < devices->num_gpus; i++) {
        oriel_cuda_enter(&devices->gpus[i]);
        oriel_cu->context_sync();
        oriel_cuda_leave();
    }
    atomic_store(&devices->drained, 1);
    return NULL;
}

/* The driver waits without limit, so a thread does that. */
int oriel_devices_drain(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;
    double until = oriel_now() + DRAIN_S + (devices->left_behind ? 0.0 : comm->timeout);
    pthread_t thread;

    atomic_store(&devices->drained, 0);
    for (int i = 0; devices->reports != NULL && oriel_comm_aborted(comm) && i < devices->num_ranks;
         i++)
        __atomic_store_n(&devices->ranks[i].report->abort, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&devices->look_lock);
    devices->fabric->look(comm);
    pthread_mutex_unlock(&devices->look_lock);
    if (oriel_sys_now->thread(&thread, drain_main, devices) != 0) {
        drain_main(devices);
        return 1;
    }
    while (!atomic_load(&devices->drained) && oriel_now() < until)
        oriel_sys_now->poll(NULL, 0, 1);
    if (atomic_load(&devices->drained)) {
        pthread_join(thread, NULL);
        return 1;
    }
    pthread_detach(thread);
    oriel_log(ORIEL_LOG_ERROR, "kernels of process %d do not end: their memory is not freed",
              comm->process);
    return 0;
}

/* ---- freeing -------------------------------------------------------------------------------- */

static void free_frames(oriel_device_rank *rank)
{
    while (rank->frames != NULL) {
        device_frame *frame = rank->frames;

        rank->frames = frame->next;
        oriel_sys_now->release(frame);
    }
}

oriel_status oriel_devices_part(oriel_comm *comm)
{
    const oriel_devices *devices = comm->devices;

    return devices != NULL ? devices->fabric->part(comm) : ORIEL_OK;
}

int oriel_devices_close(oriel_comm *comm)
{
    oriel_devices *devices = comm->devices;

    if (devices == NULL)
        return 1;
    if (devices->gpus != NULL && !oriel_devices_drain(comm)) {
        atomic_store(&devices->registrar_ends, 1);
        return 0;
    }
    oriel_registrar_stop(comm);
    oriel_experimental_hook.close(comm);
    if (!devices->fabric->close(comm))
        return 0;
    oriel_registrar_free(comm);
    for (int r = 0; devices->mapped != NULL && r < comm->size; r++)
        oriel_cuda_memory_close(&devices->mapped[r]);
    for (int i = 0; devices->ranks != NULL && i < devices->num_ranks; i++) {
        devices->fabric->heap_close(devices->ranks[i].gpu, &devices->ranks[i].heap);
        if (devices->ranks[i].free_lent != NULL)
            devices->ranks[i].free_lent(&devices->ranks[i]);
        free_frames(&devices->ranks[i]);
    }
    if (devices->reports != NULL)
        oriel_cu->host_free(devices->reports);
    for (int i = 0; i < devices->num_gpus; i++) {
        oriel_room_give(&devices->gpus[i]);
        oriel_cuda_gpu_close(&devices->gpus[i]);
    }
    pthread_mutex_destroy(&devices->look_lock);
    oriel_sys_now->release(devices->mapped);
    oriel_sys_now->release(devices->ranks);
    oriel_sys_now->release(devices->gpus);
    oriel_sys_now->release(devices);
    comm->devices = NULL;
    return 1;
}
