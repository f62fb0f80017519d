#include "fabric/cuda/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/sys.h"

const cu_driver *oriel_cu;

/* Where each symbol goes, and its name. */
struct symbol {
    size_t at;        /* offset in its table */
    const char *name; /* in the library */
};

#define CU_SYMBOL(name, symbol, params)    {offsetof(cu_driver, name), #symbol},
#define NVRTC_SYMBOL(name, symbol, params) {offsetof(cu_nvrtc, name), #symbol},
static const struct symbol cu_symbols[] = {CU_CALLS(CU_SYMBOL)};
static const struct symbol cu_later_symbols[] = {CU_LATER_CALLS(CU_SYMBOL)};
static const struct symbol nvrtc_symbols[] = {NVRTC_CALLS(NVRTC_SYMBOL)};

/* Libraries stay open: threads of theirs may run until the process ends. */
static oriel_status fill(void *library, const char *file, const struct symbol *symbols, size_t n,
                         void *table)
{
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(library, symbols[i].name);

        if (found == NULL)
            return oriel_fail(ORIEL_ERR_UNSUPPORTED, "%s has no %s: it is too old", file,
                              symbols[i].name);
        *(void **)((char *)table + symbols[i].at) = found;
    }
    return ORIEL_OK;
}

oriel_status oriel_cuda_check(cu_result result, const char *what)
{
    const char *name = NULL;
    const char *text = NULL;

    if (result == CU_OK)
        return ORIEL_OK;
    if (oriel_cu != NULL) {
        oriel_cu->error_name(result, &name);
        oriel_cu->error_text(result, &text);
    }
    return oriel_fail(ORIEL_ERR_SYSTEM, "CUDA: %s failed: %s (%d): %s", what,
                      name ? name : "unknown error", result, text ? text : "no text");
}

/* cuInit says little of why there is no device; what can be seen from here says more. */
static oriel_status no_device(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char line[8];
    int failed = oriel_sys_now->read_line("/dev/nvidiactl", line, sizeof line) != 0 ? errno : 0;

    if (visible != NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "CUDA shows no device: CUDA_VISIBLE_DEVICES=\"%s\" hides all", visible);
    if (failed == EACCES || failed == EPERM)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "CUDA shows no device: no permission to open /dev/nvidiactl");
    if (failed == ENOENT)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "CUDA shows no device: there is no /dev/nvidiactl, so no GPU, no kernel "
                          "driver, or a container that was started without them");
    return oriel_fail(ORIEL_ERR_UNSUPPORTED, "CUDA shows no device");
}

static oriel_status check_init(cu_result result)
{
    switch (result) {
    case CU_NO_DEVICE:
        return no_device();
    case CU_SYSTEM_NOT_READY:
        return oriel_fail(ORIEL_ERR_SYSTEM, "CUDA is not ready (802): nvidia-fabricmanager, which "
                                            "GPUs with NVSwitch need, does not run");
    case CU_DRIVER_MISMATCH:
        return oriel_fail(ORIEL_ERR_SYSTEM,
                          "CUDA's driver is broken (803): libcuda.so.1 and the kernel's driver are "
                          "of different versions; restart the machine, or install them anew");
    case CU_MPS_CONNECTION_FAILED:
    case CU_MPS_RPC_FAILURE:
    case CU_MPS_SERVER_NOT_READY:
        return oriel_fail(ORIEL_ERR_SYSTEM,
                          "CUDA's MPS server is sick (%d): end it, and start it again", result);
    default:
        return oriel_cuda_check(result, "cuInit");
    }
}

static oriel_status open_driver(void)
{
    static cu_driver table;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int devices = 0;
    oriel_status st;

    if (library == NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "no CUDA driver: libcuda.so.1 is not found");
    st = fill(library, "libcuda.so.1", cu_symbols, sizeof cu_symbols / sizeof *cu_symbols, &table);
    if (st != ORIEL_OK)
        return st;
    for (size_t i = 0; i < sizeof cu_later_symbols / sizeof *cu_later_symbols; i++)
        *(void **)((char *)&table + cu_later_symbols[i].at) =
            dlsym(library, cu_later_symbols[i].name);
    oriel_cu = &table;
    st = check_init(table.init(0));
    if (st == ORIEL_OK)
        st = oriel_cuda_check(table.device_count(&devices), "counting devices");
    if (st == ORIEL_OK && devices == 0)
        st = no_device();
    if (st != ORIEL_OK)
        oriel_cu = NULL;
    return st;
}

oriel_status oriel_cuda_open(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    oriel_status st;

    pthread_mutex_lock(&lock);
    st = oriel_cu != NULL ? ORIEL_OK : open_driver();
    pthread_mutex_unlock(&lock);
    return st;
}

oriel_status oriel_nvrtc_open(const cu_nvrtc **nvrtc_p)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static cu_nvrtc table;
    static int opened;
    const char *files[] = {oriel_config_string(ORIEL_OPT_NVRTC), "libnvrtc.so.13", "libnvrtc.so.12",
                           "libnvrtc.so"};
    void *library = NULL;
    oriel_status st = ORIEL_OK;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < 4 && library == NULL && !opened; i++) {
        if (files[i][0] != '\0')
            library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        if (library != NULL)
            st = fill(library, files[i], nvrtc_symbols,
                      sizeof nvrtc_symbols / sizeof *nvrtc_symbols, &table);
    }
    if (!opened && library == NULL)
        st = oriel_fail(ORIEL_ERR_UNSUPPORTED,
                        "no NVRTC to compile kernels with: %s is not found; install nvidia-cuda-"
                        "nvrtc, or set ORIEL_NVRTC to its file",
                        files[0][0] != '\0' ? files[0] : files[1]);
    opened |= st == ORIEL_OK;
    pthread_mutex_unlock(&lock);
    if (st == ORIEL_OK)
        *nvrtc_p = &table;
    return st;
}
