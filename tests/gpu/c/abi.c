/* What src/fabric/cuda/driver.h, src/fabric/cuda/nvtx.h and src/fabric/nccl/library.h declare,
 * compared with cuda.h, nvtx3 and nccl.h where a toolkit is at hand. */
#include <stddef.h>
#include <stdio.h>

#include "fabric/cuda/nvtx.h"
#include "fabric/cuda/driver.h"
#include "fabric/nccl/library.h"

#if __has_include(<cuda.h>) && __has_include(<nvtx3/nvToolsExt.h>)
#include <cuda.h>
#include <nvtx3/nvToolsExt.h>

#define SAME(ours, theirs)                                                                         \
    _Static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs)
#define SAME_FIELD(ours, a, theirs, b)                                                             \
    SAME(offsetof(ours, a), offsetof(theirs, b));                                                  \
    SAME(sizeof(((ours *)0)->a), sizeof(((theirs *)0)->b))

SAME(sizeof(cu_result), sizeof(CUresult));
SAME(sizeof(cu_device), sizeof(CUdevice));
SAME(sizeof(cu_ptr), sizeof(CUdeviceptr));
SAME(sizeof(cu_handle), sizeof(CUmemGenericAllocationHandle));
SAME(sizeof(cu_uuid), sizeof(CUuuid));
SAME(sizeof(cu_allocation), sizeof(CUmemAllocationProp));
SAME(sizeof(cu_access), sizeof(CUmemAccessDesc));
SAME_FIELD(cu_location, type, CUmemLocation, type);
SAME_FIELD(cu_location, id, CUmemLocation, id);
SAME_FIELD(cu_allocation, type, CUmemAllocationProp, type);
SAME_FIELD(cu_allocation, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(cu_allocation, location, CUmemAllocationProp, location);
SAME_FIELD(cu_allocation, flags, CUmemAllocationProp, allocFlags);
SAME_FIELD(cu_access, location, CUmemAccessDesc, location);
SAME_FIELD(cu_access, flags, CUmemAccessDesc, flags);
SAME(sizeof(cu_launch_attribute), sizeof(CUlaunchAttribute));
SAME_FIELD(cu_launch_attribute, value, CUlaunchAttribute, value);
SAME(sizeof(cu_launch), sizeof(CUlaunchConfig));
SAME_FIELD(cu_launch, grid_x, CUlaunchConfig, gridDimX);
SAME_FIELD(cu_launch, block_z, CUlaunchConfig, blockDimZ);
SAME_FIELD(cu_launch, shared, CUlaunchConfig, sharedMemBytes);
SAME_FIELD(cu_launch, stream, CUlaunchConfig, hStream);
SAME_FIELD(cu_launch, attributes, CUlaunchConfig, attrs);
SAME_FIELD(cu_launch, num_attributes, CUlaunchConfig, numAttrs);
SAME(CU_LAUNCH_EARLY, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(CU_OK, CUDA_SUCCESS);
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CU_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
SAME(CU_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(CU_MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_CONNECTION_FAILED);
SAME(CU_MPS_RPC_FAILURE, CUDA_ERROR_MPS_RPC_FAILURE);
SAME(CU_MPS_SERVER_NOT_READY, CUDA_ERROR_MPS_SERVER_NOT_READY);
SAME(CU_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME(CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CU_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(CU_STREAM_NON_BLOCKING_FLAG, CU_STREAM_NON_BLOCKING);
SAME(CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(CU_HOST_DEVICE_MAP, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(CU_FUNCTION_MOST_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(CU_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(CU_ATTRIBUTE_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_ATTRIBUTE_MEMORY_CLOCK, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME(CU_ATTRIBUTE_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME(CU_ATTRIBUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_ATTRIBUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_ATTRIBUTE_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CU_ATTRIBUTE_POSIX_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME(CU_ATTRIBUTE_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME(CU_ATTRIBUTE_FABRIC, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
SAME(CU_ATTRIBUTE_MULTICAST, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
SAME(CU_ATTRIBUTE_MPS, CU_DEVICE_ATTRIBUTE_MPS_ENABLED);

SAME(sizeof(nvtx_event), sizeof(nvtxEventAttributes_t));
SAME_FIELD(nvtx_event, size, nvtxEventAttributes_t, size);
SAME_FIELD(nvtx_event, payload_type, nvtxEventAttributes_t, payloadType);
SAME_FIELD(nvtx_event, payload, nvtxEventAttributes_t, payload);
SAME_FIELD(nvtx_event, message_type, nvtxEventAttributes_t, messageType);
SAME_FIELD(nvtx_event, message, nvtxEventAttributes_t, message);
SAME(NVTX_VERSION_3, NVTX_VERSION);
SAME(NVTX_PAYLOAD_U64, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64);
SAME(NVTX_MESSAGE_ASCII, NVTX_MESSAGE_TYPE_ASCII);
SAME(NVTX_EXPORT_CALLBACKS, NVTX_ETID_CALLBACKS);
SAME(NVTX_EXPORT_VERSION, NVTX_ETID_VERSIONINFO);
SAME(NVTX_MODULE_CORE, NVTX_CB_MODULE_CORE);
SAME(NVTX_MODULE_CORE2, NVTX_CB_MODULE_CORE2);
SAME(NVTX_MODULES, NVTX_CB_MODULE_SIZE);
SAME(NVTX_CORE2_RANGE_PUSH, NVTX_CBID_CORE2_DomainRangePushEx);
SAME(NVTX_CORE2_RANGE_POP, NVTX_CBID_CORE2_DomainRangePop);
SAME(NVTX_CORE2_DOMAIN_CREATE, NVTX_CBID_CORE2_DomainCreateA);
SAME(sizeof(nvtx_callbacks), sizeof(NvtxExportTableCallbacks));
SAME(sizeof(nvtx_version), sizeof(NvtxExportTableVersionInfo));

#if __has_include(<nccl.h>)
#include <nccl.h>

SAME(sizeof(nccl_id), sizeof(ncclUniqueId));
SAME_FIELD(nccl_config, size, ncclConfig_t, size);
SAME_FIELD(nccl_config, magic, ncclConfig_t, magic);
SAME_FIELD(nccl_config, version, ncclConfig_t, version);
SAME_FIELD(nccl_config, blocking, ncclConfig_t, blocking);
SAME_FIELD(nccl_config, max_ctas, ncclConfig_t, maxCTAs);
SAME_FIELD(nccl_config, net_name, ncclConfig_t, netName);
SAME_FIELD(nccl_config, comm_name, ncclConfig_t, commName);
SAME_FIELD(nccl_config, nvlink_centric_sched, ncclConfig_t, nvlinkCentricSched);
SAME(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_WINDOW_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC);
SAME(NCCL_WINDOW_ALIGNMENT, NCCL_WIN_REQUIRED_ALIGNMENT);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_PROD, ncclProd);
SAME(NCCL_MAX, ncclMax);
SAME(NCCL_MIN, ncclMin);
SAME(NCCL_INT8, ncclInt8);
SAME(NCCL_UINT8, ncclUint8);
SAME(NCCL_INT32, ncclInt32);
SAME(NCCL_UINT32, ncclUint32);
SAME(NCCL_INT64, ncclInt64);
SAME(NCCL_UINT64, ncclUint64);
SAME(NCCL_FLOAT16, ncclFloat16);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(NCCL_FLOAT64, ncclFloat64);
SAME(NCCL_BFLOAT16, ncclBfloat16);
#endif

int main(void)
{
    printf("as in cuda.h of CUDA %d\n", CUDA_VERSION);
    return 0;
}
#else
int main(void)
{
    printf("skipped: no cuda.h and nvtx3, which come with the CUDA toolkit\n");
    return 77;
}
#endif
