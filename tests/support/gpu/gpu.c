#include "support/gpu/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/check.h"

gpu_calls gpu;

void gpu_check(const char *file, int line, const char *what, cu_result result)
{
    const char *text = "no text";

    if (result == CU_OK)
        return;
    oriel_cu->error_text(result, &text);
    check_failed(file, line, what, "CUDA says %d: %s", result, text);
}

void gpu_open(void)
{
    static const struct {
        size_t at;
        const char *name;
    } symbols[] = {
#define GPU_SYMBOL(name, symbol, params) {offsetof(gpu_calls, name), #symbol},
        GPU_CALLS(GPU_SYMBOL)};
    void *library;

    /* Ranks that are threads have more streams than that by default: those that share a queue
     * wait for each other's kernels. Many processes under MPS do not get so many. */
    if (getenv("ORIEL_NUM_PROCESSES") == NULL)
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (oriel_cuda_open() != ORIEL_OK) {
        printf("skipped: %s\n", oriel_last_error());
        exit(77);
    }
    library = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(library, symbols[i].name);

        CHECK(found != NULL, "libcuda has no %s", symbols[i].name);
        *(void **)((char *)&gpu + symbols[i].at) = found;
    }
}

const oriel_gpu *gpu_device(void)
{
    static _Thread_local oriel_gpu device;

    if (device.context == NULL)
        CHECK_OK(oriel_cuda_gpu_open(0, &device));
    return &device;
}

void gpu_enter(void)
{
    CHECK_CU(oriel_cu->context_push(gpu_device()->context));
}

static oriel_comm *make(oriel_comm_params params, int local_ranks, double timeout_s)
{
    int *devices = calloc((size_t)local_ranks, sizeof *devices);
    oriel_comm *comm;

    params.local_ranks = local_ranks;
    params.timeout_s = timeout_s;
    params.devices = devices;
    CHECK_OK(oriel_comm_create(&params, &comm));
    free(devices);
    return comm;
}

oriel_comm *gpu_comm(int local_ranks, double timeout_s)
{
    return make((oriel_comm_params)ORIEL_COMM_PARAMS_INIT, local_ranks, timeout_s);
}

oriel_comm *gpu_comm_alone(int local_ranks, double timeout_s)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;

    params.process_id = 0;
    params.num_processes = 1;
    return make(params, local_ranks, timeout_s);
}

cu_stream gpu_stream(void)
{
    cu_stream stream;

    CHECK_CU(oriel_cu->stream_create(&stream, CU_STREAM_NON_BLOCKING_FLAG, 0));
    return stream;
}

cu_ptr gpu_alloc(size_t bytes)
{
    cu_ptr at;

    CHECK_CU(gpu.mem_alloc(&at, bytes > 0 ? bytes : 1));
    return at;
}

/* On a stream of its own: the default one would wait for kernels that spin. */
static cu_stream copies(void)
{
    static _Thread_local cu_stream stream;

    if (stream == NULL)
        stream = gpu_stream();
    return stream;
}

void gpu_put(cu_ptr to, const void *from, size_t bytes)
{
    CHECK_CU(oriel_cu->copy_in(to, from, bytes, copies()));
    CHECK_CU(oriel_cu->stream_sync(copies()));
}

void gpu_get(void *to, cu_ptr from, size_t bytes)
{
    CHECK_CU(oriel_cu->copy_out(to, from, bytes, copies()));
    CHECK_CU(oriel_cu->stream_sync(copies()));
}

void *gpu_cubin(const char *source, const char *name, const char *root, size_t *bytes_p)
{
    char target[48], include[512];
    const char *options[] = {target, include, "--std=c++17", "--device-as-default-execution-space",
                             "--fmad=false"};
    const cu_nvrtc *nvrtc;
    nvrtc_program program;
    size_t bytes = 0;
    char *out;

    CHECK_OK(oriel_nvrtc_open(&nvrtc));
    snprintf(target, sizeof target, "--gpu-architecture=sm_%d", gpu_device()->arch);
    snprintf(include, sizeof include, "-I%s/include", root != NULL ? root : "");
    CHECK(nvrtc->create(&program, source, name, 0, NULL, NULL) == 0, "no program");
    if (nvrtc->compile(program, root != NULL ? 5 : 1, options) != 0) {
        nvrtc->log_size(program, &bytes);
        out = calloc(1, bytes + 1);
        nvrtc->log(program, out);
        CHECK(0, "%s does not compile: %s", name, out);
    }
    CHECK(nvrtc->cubin_size(program, &bytes) == 0, "no code");
    out = malloc(bytes);
    nvrtc->cubin(program, out);
    nvrtc->destroy(&program);
    *bytes_p = bytes;
    return out;
}

cu_function gpu_compile(const char *source, const char *name)
{
    cu_function function;
    cu_module module;
    size_t bytes;
    void *cubin = gpu_cubin(source, "test.cu", NULL, &bytes);

    CHECK_CU(oriel_cu->module_load(&module, cubin, 0, NULL, NULL));
    CHECK_CU(oriel_cu->module_function(&function, module, name));
    CHECK_CU(oriel_cu->function_load(function));
    free(cubin);
    return function;
}

void gpu_launch(cu_function function, unsigned ctas, unsigned threads, void **params,
                cu_stream stream)
{
    cu_launch launch = {.grid_x = ctas,
                        .grid_y = 1,
                        .grid_z = 1,
                        .block_x = threads,
                        .block_y = 1,
                        .block_z = 1,
                        .stream = stream};

    CHECK_CU(oriel_cu->launch(&launch, function, params, NULL));
}
