/* The part of CUDA's driver API and of NVRTC that oriel uses, declared here: a user needs
 * no CUDA headers, and the libraries are opened at run time. tests/gpu/c/abi.c compares
 * types and values with cuda.h where a toolkit is at hand. */
#ifndef ORIEL_FABRIC_CUDA_DRIVER_H
#define ORIEL_FABRIC_CUDA_DRIVER_H

#include <stddef.h>

#include "base/status.h"

typedef int cu_result; /* 0: success */
typedef int cu_device;
typedef unsigned long long cu_ptr;
typedef unsigned long long cu_handle; /* CUmemGenericAllocationHandle */
typedef struct cu_context_object *cu_context;
typedef struct cu_stream_object *cu_stream;
typedef struct cu_event_object *cu_event;
typedef struct cu_module_object *cu_module;
typedef struct cu_function_object *cu_function;

typedef struct cu_uuid {
    char bytes[16];
} cu_uuid;

typedef struct cu_location {
    int type;
    int id;
} cu_location;

typedef struct cu_allocation {
    int type;
    int handle_types;
    cu_location location;
    void *win32;
    struct {
        unsigned char compression;
        unsigned char rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} cu_allocation;

/* A multicast object: memory of several devices that is written and summed together. */
typedef struct cu_multicast {
    unsigned devices;
    size_t bytes;
    unsigned long long handle_types;
    unsigned long long flags;
} cu_multicast;

typedef struct cu_access {
    cu_location location;
    int flags;
} cu_access;

typedef struct cu_launch_attribute {
    unsigned id; /* CU_LAUNCH_EARLY */
    unsigned reserved;
    union {
        char bytes[64];
        int allowed;
    } value;
} cu_launch_attribute;

typedef struct cu_launch {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    cu_stream stream;
    cu_launch_attribute *attributes;
    unsigned num_attributes;
} cu_launch;

enum {
    CU_OK = 0,
    CU_NO_DEVICE = 100,
    CU_NOT_READY = 600,
    CU_PEER_ACCESS_ALREADY_ENABLED = 704,
    CU_SYSTEM_NOT_READY = 802,
    CU_DRIVER_MISMATCH = 803,
    CU_MPS_CONNECTION_FAILED = 805,
    CU_MPS_RPC_FAILURE = 806,
    CU_MPS_SERVER_NOT_READY = 807,
    CU_LOCATION_DEVICE = 1,
    CU_HANDLE_POSIX_FD = 1,
    CU_ALLOCATION_PINNED = 1,
    CU_ACCESS_READ_WRITE = 3,
    CU_GRANULARITY_MINIMUM = 0,
    CU_STREAM_NON_BLOCKING_FLAG = 1,
    CU_EVENT_NO_TIMING = 2,
    CU_HOST_PORTABLE = 1,
    CU_HOST_DEVICE_MAP = 2,
    CU_POINTER_BUFFER_ID = 7,
    CU_FUNCTION_MOST_THREADS = 0,
    CU_LAUNCH_EARLY = 6, /* the kernel before on the stream decides when: see kernels.cu */
    CU_ATTRIBUTE_SM_COUNT = 16,
    CU_ATTRIBUTE_MEMORY_CLOCK = 36, /* kHz */
    CU_ATTRIBUTE_BUS_WIDTH = 37,    /* bits */
    CU_ATTRIBUTE_MAJOR = 75,
    CU_ATTRIBUTE_MINOR = 76,
    CU_ATTRIBUTE_VMM = 102,
    CU_ATTRIBUTE_POSIX_FD = 103,
    CU_ATTRIBUTE_RDMA = 110, /* NICs reach virtual memory */
    CU_ATTRIBUTE_FABRIC = 128,
    CU_ATTRIBUTE_MULTICAST = 132,
    CU_ATTRIBUTE_MPS = 133,
};

/* X(name here, name in the library, parameters) */
#define CU_CALLS(X)                                                                                \
    X(init, cuInit, (unsigned flags))                                                              \
    X(driver_version, cuDriverGetVersion, (int *version))                                          \
    X(error_name, cuGetErrorName, (cu_result result, const char **text))                           \
    X(error_text, cuGetErrorString, (cu_result result, const char **text))                         \
    X(device_count, cuDeviceGetCount, (int *count))                                                \
    X(device_get, cuDeviceGet, (cu_device * device, int ordinal))                                  \
    X(device_name, cuDeviceGetName, (char *name, int len, cu_device device))                       \
    X(device_uuid, cuDeviceGetUuid_v2, (cu_uuid * uuid, cu_device device))                         \
    X(device_bytes, cuDeviceTotalMem_v2, (size_t * bytes, cu_device device))                       \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, cu_device device))       \
    X(device_reaches, cuDeviceCanAccessPeer, (int *can, cu_device device, cu_device peer))         \
    X(primary_retain, cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))          \
    X(primary_release, cuDevicePrimaryCtxRelease_v2, (cu_device device))                           \
    X(context_push, cuCtxPushCurrent_v2, (cu_context context))                                     \
    X(context_pop, cuCtxPopCurrent_v2, (cu_context * context))                                     \
    X(context_sync, cuCtxSynchronize, (void))                                                      \
    X(context_reach, cuCtxEnablePeerAccess, (cu_context peer, unsigned flags))                     \
    X(granularity, cuMemGetAllocationGranularity,                                                  \
      (size_t * bytes, const cu_allocation *allocation, int option))                               \
    X(mem_create, cuMemCreate,                                                                     \
      (cu_handle * handle, size_t bytes, const cu_allocation *allocation,                          \
       unsigned long long flags))                                                                  \
    X(mem_release, cuMemRelease, (cu_handle handle))                                               \
    X(mem_reserve, cuMemAddressReserve,                                                            \
      (cu_ptr * at, size_t bytes, size_t alignment, cu_ptr wish, unsigned long long flags))        \
    X(mem_unreserve, cuMemAddressFree, (cu_ptr at, size_t bytes))                                  \
    X(mem_map, cuMemMap,                                                                           \
      (cu_ptr at, size_t bytes, size_t offset, cu_handle handle, unsigned long long flags))        \
    X(mem_unmap, cuMemUnmap, (cu_ptr at, size_t bytes))                                            \
    X(mem_access, cuMemSetAccess,                                                                  \
      (cu_ptr at, size_t bytes, const cu_access *access, size_t count))                            \
    X(mem_export, cuMemExportToShareableHandle,                                                    \
      (void *shareable, cu_handle handle, int type, unsigned long long flags))                     \
    X(mem_import, cuMemImportFromShareableHandle, (cu_handle * handle, void *shareable, int type)) \
    X(mem_retain, cuMemRetainAllocationHandle, (cu_handle * handle, void *at))                     \
    X(mem_range, cuMemGetAddressRange_v2, (cu_ptr * base, size_t * bytes, cu_ptr at))              \
    X(pointer_attribute, cuPointerGetAttribute, (void *value, int attribute, cu_ptr at))           \
    X(host_alloc, cuMemHostAlloc, (void **at, size_t bytes, unsigned flags))                       \
    X(host_free, cuMemFreeHost, (void *at))                                                        \
    X(host_pointer, cuMemHostGetDevicePointer_v2, (cu_ptr * at, void *host, unsigned flags))       \
    X(copy_in, cuMemcpyHtoDAsync_v2,                                                               \
      (cu_ptr to, const void *from, size_t bytes, cu_stream stream))                               \
    X(copy_out, cuMemcpyDtoHAsync_v2, (void *to, cu_ptr from, size_t bytes, cu_stream stream))     \
    X(copy, cuMemcpyDtoDAsync_v2, (cu_ptr to, cu_ptr from, size_t bytes, cu_stream stream))        \
    X(fill, cuMemsetD8Async, (cu_ptr at, unsigned char value, size_t bytes, cu_stream stream))     \
    X(fill_words, cuMemsetD32Async, (cu_ptr at, unsigned value, size_t count, cu_stream stream))   \
    X(stream_create, cuStreamCreateWithPriority,                                                   \
      (cu_stream * stream, unsigned flags, int priority))                                          \
    X(stream_destroy, cuStreamDestroy_v2, (cu_stream stream))                                      \
    X(stream_sync, cuStreamSynchronize, (cu_stream stream))                                        \
    X(stream_query, cuStreamQuery, (cu_stream stream))                                             \
    X(stream_captured, cuStreamIsCapturing, (cu_stream stream, int *captured))                     \
    X(stream_follow, cuStreamWaitEvent, (cu_stream stream, cu_event event, unsigned flags))        \
    X(event_create, cuEventCreate, (cu_event * event, unsigned flags))                             \
    X(event_record, cuEventRecord, (cu_event event, cu_stream stream))                             \
    X(event_destroy, cuEventDestroy_v2, (cu_event event))                                          \
    X(module_load, cuModuleLoadDataEx,                                                             \
      (cu_module * module, const void *image, unsigned options, int *names, void **values))        \
    X(module_unload, cuModuleUnload, (cu_module module))                                           \
    X(module_function, cuModuleGetFunction,                                                        \
      (cu_function * function, cu_module module, const char *name))                                \
    X(function_load, cuFuncLoad, (cu_function function))                                           \
    X(function_attribute, cuFuncGetAttribute, (int *value, int attribute, cu_function function))   \
    X(launch, cuLaunchKernelEx,                                                                    \
      (const cu_launch *launch, cu_function function, void **params, void **extra))

/* From driver 12.1 on; NULL before. */
#define CU_LATER_CALLS(X)                                                                          \
    X(multicast_create, cuMulticastCreate, (cu_handle * handle, const cu_multicast *multicast))    \
    X(multicast_add, cuMulticastAddDevice, (cu_handle handle, cu_device device))                   \
    X(multicast_bind, cuMulticastBindMem,                                                          \
      (cu_handle handle, size_t at, cu_handle memory, size_t memory_at, size_t bytes,              \
       unsigned long long flags))                                                                  \
    X(multicast_unbind, cuMulticastUnbind,                                                         \
      (cu_handle handle, cu_device device, size_t at, size_t bytes))                               \
    X(multicast_granularity, cuMulticastGetGranularity,                                            \
      (size_t * bytes, const cu_multicast *multicast, int option))

typedef struct cu_driver {
#define CU_MEMBER(name, symbol, params) cu_result(*name) params;
    CU_CALLS(CU_MEMBER)
    CU_LATER_CALLS(CU_MEMBER)
#undef CU_MEMBER
} cu_driver;

typedef struct nvrtc_program_object *nvrtc_program;

#define NVRTC_CALLS(X)                                                                             \
    X(version, nvrtcVersion, (int *major, int *minor))                                             \
    X(create, nvrtcCreateProgram,                                                                  \
      (nvrtc_program * program, const char *text, const char *name, int num_headers,               \
       const char *const *headers, const char *const *names))                                      \
    X(destroy, nvrtcDestroyProgram, (nvrtc_program * program))                                     \
    X(compile, nvrtcCompileProgram,                                                                \
      (nvrtc_program program, int num_options, const char *const *options))                        \
    X(log_size, nvrtcGetProgramLogSize, (nvrtc_program program, size_t * bytes))                   \
    X(log, nvrtcGetProgramLog, (nvrtc_program program, char *text))                                \
    X(cubin_size, nvrtcGetCUBINSize, (nvrtc_program program, size_t * bytes))                      \
    X(cubin, nvrtcGetCUBIN, (nvrtc_program program, char *cubin))

typedef struct cu_nvrtc {
#define NVRTC_MEMBER(name, symbol, params) int(*name) params;
    NVRTC_CALLS(NVRTC_MEMBER)
#undef NVRTC_MEMBER
} cu_nvrtc;

/* Local, once per process: opens libcuda.so.1 and initialises it. The table is then
 * *oriel_cu. A failure is a sentence: no driver, too old a driver, no device. */
oriel_status oriel_cuda_open(void);
extern const cu_driver *oriel_cu;
/* The same for NVRTC: ORIEL_NVRTC, or by its names in the loader's path. */
oriel_status oriel_nvrtc_open(const cu_nvrtc **nvrtc_p);

/* Fails with what the driver says of `result`; ORIEL_OK for 0. `what` is what was tried. */
oriel_status oriel_cuda_check(cu_result result, const char *what);

#endif
