/* What src/fabric/cuda_driver.h declares, compared with cuda.h where a toolkit is at hand. */
#include <stddef.h>
#include <stdio.h>

#include "fabric/cuda_driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

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
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
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
SAME(CU_ATTRIBUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_ATTRIBUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_ATTRIBUTE_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CU_ATTRIBUTE_POSIX_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);

int main(void)
{
    printf("as in cuda.h of CUDA %d\n", CUDA_VERSION);
    return 0;
}
#else
int main(void)
{
    printf("skipped: no cuda.h, which comes with the CUDA toolkit\n");
    return 77;
}
#endif
