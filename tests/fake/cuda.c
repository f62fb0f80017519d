/* A libcuda.so.1 without a GPU, for tests of what is said of GPUs. FAKE_CUDA is a list of
 * what differs from two good ones: "init=100 gpus=1 reach=0 vmm=0 mps=1 sync_ms=20". */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fabric/cuda/driver.h"

static int setting(const char *name, int fallback)
{
    const char *all = getenv("FAKE_CUDA");
    const char *at = all != NULL ? strstr(all, name) : NULL;

    return at != NULL ? atoi(at + strlen(name)) : fallback;
}

cu_result cuInit(unsigned flags);
cu_result cuInit(unsigned flags)
{
    (void)flags;
    if (setting("crash=", 0))
        raise(SIGSEGV);
    return setting("init=", CU_OK);
}

cu_result cuDriverGetVersion(int *version);
cu_result cuDriverGetVersion(int *version)
{
    *version = setting("version=", 13000);
    return CU_OK;
}

cu_result cuGetErrorName(cu_result result, const char **text);
cu_result cuGetErrorName(cu_result result, const char **text)
{
    (void)result;
    *text = "CUDA_ERROR_FAKE";
    return CU_OK;
}

cu_result cuDeviceGetCount(int *count);
cu_result cuDeviceGetCount(int *count)
{
    *count = setting("gpus=", 2);
    return CU_OK;
}

cu_result cuDeviceGet(cu_device *device, int ordinal);
cu_result cuDeviceGet(cu_device *device, int ordinal)
{
    *device = ordinal;
    return CU_OK;
}

cu_result cuDeviceGetName(char *name, int len, cu_device device);
cu_result cuDeviceGetName(char *name, int len, cu_device device)
{
    snprintf(name, (size_t)len, "Fake \"GPU\" %d", device);
    return CU_OK;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device);
cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
    (void)device;
    *bytes = (size_t)140 << 30;
    return CU_OK;
}

cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device device);
cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device device)
{
    (void)device;
    switch (attribute) {
    case CU_ATTRIBUTE_SM_COUNT:
        *value = 132;
        break;
    case CU_ATTRIBUTE_MAJOR:
        *value = 9;
        break;
    case CU_ATTRIBUTE_MEMORY_CLOCK:
        *value = 3201000;
        break;
    case CU_ATTRIBUTE_BUS_WIDTH:
        *value = 6144;
        break;
    case CU_ATTRIBUTE_VMM:
        *value = setting("vmm=", 1);
        break;
    case CU_ATTRIBUTE_POSIX_FD:
    case CU_ATTRIBUTE_FABRIC:
        *value = 1;
        break;
    case CU_ATTRIBUTE_MPS:
        *value = setting("mps=", 0);
        break;
    default:
        *value = 0;
    }
    return CU_OK;
}

cu_result cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer);
cu_result cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer)
{
    (void)device;
    (void)peer;
    *can = setting("reach=", 1);
    return CU_OK;
}

cu_result cuMemGetAllocationGranularity(size_t *bytes, const cu_allocation *allocation, int option);
cu_result cuMemGetAllocationGranularity(size_t *bytes, const cu_allocation *allocation, int option)
{
    (void)allocation;
    (void)option;
    *bytes = 2 << 20;
    return CU_OK;
}

/* How long copies take. */
cu_result cuStreamSynchronize(cu_stream stream);
cu_result cuStreamSynchronize(cu_stream stream)
{
    struct timespec time = {.tv_nsec = 1000000L * setting("sync_ms=", 2)};

    (void)stream;
    nanosleep(&time, NULL);
    return CU_OK;
}

cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device);
cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
    static int contexts[64];

    *context = (cu_context)(void *)&contexts[device];
    return CU_OK;
}
