/* NVTX ranges: what a call is, for tools that show it (Nsight Systems, and XProf through
 * CUPTI). Where no tool is attached a range costs one comparison. */
#ifndef ORIEL_FABRIC_CUDA_NVTX_H
#define ORIEL_FABRIC_CUDA_NVTX_H

#include <stddef.h>
#include <stdint.h>

/* As in nvtx3's headers, which nobody needs to have; tests/gpu/c/abi.c compares. */
typedef struct nvtx_event {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type;
    int32_t reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
} nvtx_event;

enum {
    NVTX_VERSION_3 = 3,
    NVTX_PAYLOAD_U64 = 1,
    NVTX_MESSAGE_ASCII = 1,
    NVTX_EXPORT_CALLBACKS = 1,
    NVTX_EXPORT_VERSION = 3,
    NVTX_MODULE_CORE = 1,
    NVTX_MODULE_CUDA,
    NVTX_MODULE_OPENCL,
    NVTX_MODULE_CUDART,
    NVTX_MODULE_CORE2,
    NVTX_MODULE_SYNC,
    NVTX_MODULES,
    NVTX_CORE2_RANGE_PUSH = 4,
    NVTX_CORE2_RANGE_POP = 5,
    NVTX_CORE2_DOMAIN_CREATE = 12,
};

typedef void (*nvtx_function)(void);

typedef struct nvtx_callbacks {
    size_t struct_size;
    int (*table)(int module, nvtx_function ***table_p, unsigned *size_p);
} nvtx_callbacks;

typedef struct nvtx_version {
    size_t struct_size;
    uint32_t version;
    uint32_t reserved;
    void (*set_version)(uint32_t version);
} nvtx_version;

/* Local, once per process: attaches the tool that NVTX_INJECTION64_PATH names, if any. */
void oriel_nvtx_open(void);
/* "oriel.all_reduce, 4096 bytes, 2 ranks": what this thread does until oriel_nvtx_pop. */
void oriel_nvtx_push(const char *name, uint64_t bytes, int ranks);
void oriel_nvtx_pop(void);

#endif
