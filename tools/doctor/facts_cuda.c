/* CUDA's half of facts.h: the driver, its GPUs and how fast they copy. */
#include "doctor/facts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "fabric/cuda/memory.h"

enum { COPY_BYTES = 256 << 20, COPIES = 20, ROUNDS = 5 };

/* ---- a GPU ------------------------------------------------------------------------------- */

static int attribute(cu_device device, int which)
{
    int value = 0;

    return oriel_cu->device_attribute(&value, which, device) == CU_OK ? value : 0;
}

static void look_up(cu_device device, oriel_gpu_facts *facts)
{
    size_t bytes = 0;

    oriel_cu->device_name(facts->name, sizeof facts->name, device);
    oriel_cu->device_bytes(&bytes, device);
    facts->bytes = bytes;
    facts->sms = attribute(device, CU_ATTRIBUTE_SM_COUNT);
    facts->arch =
        10 * attribute(device, CU_ATTRIBUTE_MAJOR) + attribute(device, CU_ATTRIBUTE_MINOR);
    facts->vmm = attribute(device, CU_ATTRIBUTE_VMM);
    facts->fds = attribute(device, CU_ATTRIBUTE_POSIX_FD);
    facts->fabric = attribute(device, CU_ATTRIBUTE_FABRIC);
    facts->multicast = attribute(device, CU_ATTRIBUTE_MULTICAST);
    facts->mps = attribute(device, CU_ATTRIBUTE_MPS);
    /* Two transfers in each clock, of so many bits. */
    facts->memory_rate = 2.0 * 1e3 * attribute(device, CU_ATTRIBUTE_MEMORY_CLOCK) *
                         attribute(device, CU_ATTRIBUTE_BUS_WIDTH) / 8.0;
}

static unsigned reach_of(cu_device device, int count)
{
    unsigned reaches = 0;

    for (int i = 0; i < count && i < FACTS_GPUS; i++) {
        cu_device peer;
        int can = 0;

        if (oriel_cu->device_get(&peer, i) != CU_OK)
            continue;
        if (peer != device)
            oriel_cu->device_reaches(&can, device, peer);
        if (peer == device || can)
            reaches |= 1u << i;
    }
    return reaches;
}

/* Seconds for COPIES copies, the best of some; 0: a copy failed. */
static double time_copies(const oriel_gpu *gpu, cu_ptr to, cu_ptr from)
{
    cu_result result = CU_OK;
    double best = 0;

    for (int round = 0; round < ROUNDS && result == CU_OK; round++) {
        double began = oriel_now();
        double took;

        for (int i = 0; i < COPIES && result == CU_OK; i++)
            result = oriel_cu->copy(to, from, COPY_BYTES, gpu->stream);
        if (result == CU_OK)
            result = oriel_cu->stream_sync(gpu->stream);
        took = oriel_now() - began;
        if (round == 1 || (round > 1 && took < best)) /* the first warms up */
            best = took;
    }
    return result == CU_OK ? best : 0;
}

static oriel_status measure(const oriel_gpu *gpu, double *rate_p)
{
    oriel_cuda_memory from, to;
    double seconds;
    oriel_status st = oriel_cuda_memory_create(gpu, COPY_BYTES, &from);

    if (st != ORIEL_OK)
        return st;
    st = oriel_cuda_memory_create(gpu, COPY_BYTES, &to);
    if (st == ORIEL_OK) {
        oriel_cuda_enter(gpu);
        seconds = time_copies(gpu, to.base, from.base);
        oriel_cuda_leave();
        oriel_cuda_memory_close(&to);
        if (seconds > 0)
            *rate_p = 2.0 * COPIES * (double)COPY_BYTES / seconds;
        else
            st = oriel_fail(ORIEL_ERR_SYSTEM, "a copy within its memory failed");
    }
    oriel_cuda_memory_close(&from);
    return st;
}

static void look_at_gpu(int ordinal, int count, oriel_gpu_facts *facts)
{
    oriel_gpu gpu;
    cu_device device;
    oriel_status st = oriel_cuda_check(oriel_cu->device_get(&device, ordinal), "opening a device");

    if (st == ORIEL_OK) {
        look_up(device, facts);
        facts->reaches = reach_of(device, count);
        st = oriel_cuda_gpu_open(ordinal, &gpu);
    }
    if (st == ORIEL_OK) {
        st = measure(&gpu, &facts->copy_rate);
        oriel_cuda_gpu_close(&gpu);
    }
    if (st != ORIEL_OK)
        snprintf(facts->problem, sizeof facts->problem, "%s", oriel_last_error());
}

/* ---- around it ----------------------------------------------------------------------------- */

static void look_for_driver(char *version, size_t len)
{
    char line[128];

    if (oriel_sys_now->read_line("/sys/module/nvidia/version", line, sizeof line) == 0)
        snprintf(version, len, "%.*s", (int)len - 1, line);
}

/* The daemon leaves its files behind when it is killed. */
static void look_for_mps(oriel_cuda_facts *facts)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[FACTS_TEXT + 64];
    char line[64];
    int pid;

    snprintf(facts->mps_folder, sizeof facts->mps_folder, "%s",
             folder != NULL && folder[0] != '\0' ? folder : "/tmp/nvidia-mps");
    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", facts->mps_folder);
    if (oriel_sys_now->read_line(path, line, sizeof line) != 0)
        return;
    pid = atoi(line);
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    if (pid > 0 && oriel_sys_now->read_line(path, line, sizeof line) == 0 &&
        strncmp(line, "nvidia-cuda-mps", 15) == 0)
        facts->mps_daemon = pid;
}

/* Which file the function is of that `slot` points to. */
static void locate(const void *slot, char *file, size_t len)
{
    Dl_info info;
    void *function;

    memcpy(&function, slot, sizeof function);
    if (dladdr(function, &info) != 0 && info.dli_fname != NULL)
        snprintf(file, len, "%s", info.dli_fname);
}

static void look_for_nvrtc(oriel_library_facts *facts)
{
    const cu_nvrtc *nvrtc;

    if (oriel_nvrtc_open(&nvrtc) != ORIEL_OK)
        return;
    nvrtc->version(&facts->major, &facts->minor);
    locate(&nvrtc->version, facts->file, sizeof facts->file);
}

void oriel_cuda_look(oriel_cuda_facts *facts_p)
{
    oriel_cuda_facts *facts = facts_p;

    memset(facts, 0, sizeof *facts);
    facts->has_driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL;
    look_for_driver(facts->driver, sizeof facts->driver);
    look_for_mps(facts);
    look_for_nvrtc(&facts->nvrtc);
    if (oriel_cuda_open() != ORIEL_OK) {
        snprintf(facts->problem, sizeof facts->problem, "%s", oriel_last_error());
        return;
    }
    oriel_cu->driver_version(&facts->version);
    oriel_cu->device_count(&facts->num_gpus);
    for (int i = 0; i < facts->num_gpus && i < FACTS_GPUS; i++)
        look_at_gpu(i, facts->num_gpus, &facts->gpus[i]);
}
