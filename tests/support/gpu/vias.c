#include "support/gpu/vias.h"

#include <stdlib.h>
#include <string.h>

#include "oriel/oriel.h"
#include "support/gpu/nccl.h"

void vias_open(void)
{
    const char *fabric = getenv("ORIEL_FABRIC");
    const char *library = getenv("ORIEL_NCCL");

    /* Loading a kernel late may wait for those of another rank, which may be a thread. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    gpu_open();
    if (fabric != NULL && strcmp(fabric, "nccl") == 0)
        nccl_open(library != NULL ? library : "libnccl.so.2");
}

int vias_has(oriel_comm *comm, oriel_via via)
{
    return oriel_via_check(oriel_comm_world(comm), via, ORIEL_F32, ORIEL_SUM) == ORIEL_OK;
}

oriel_status vias_sum(oriel_comm *comm, int rank, cu_ptr send, cu_ptr recv, size_t count,
                      oriel_via via, cu_stream stream)
{
    return oriel_all_reduce_via_on(oriel_comm_world(comm), rank, gpu_pointer(send),
                                   gpu_pointer(recv), count, ORIEL_F32, ORIEL_SUM, via, stream);
}

cu_function vias_delay(void)
{
    static const char source[] =
        "extern \"C\" __global__ void delay(unsigned long long ns) {\n"
        "    unsigned long long begin, now;\n"
        "    asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(begin));\n"
        "    do { asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now)); }\n"
        "    while (now - begin < ns);\n"
        "}\n";

    return gpu_compile(source, "delay");
}

void vias_delay_launch(cu_function delay, unsigned long long ns, cu_stream stream)
{
    void *params[] = {&ns};

    gpu_launch(delay, 1, 1, params, stream);
}
