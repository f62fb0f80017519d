/* NVTX has no library of its own: each user of it shows the tool tables of pointers, by
 * module, where the tool puts its functions. oriel calls three of them. */
#include "fabric/cuda/nvtx.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { MOST_SLOTS = 17 };

/* Functions in the table of each module. */
static const unsigned sizes[NVTX_MODULES] = {
    [NVTX_MODULE_CORE] = 16,  [NVTX_MODULE_CUDA] = 9,   [NVTX_MODULE_OPENCL] = 15,
    [NVTX_MODULE_CUDART] = 7, [NVTX_MODULE_CORE2] = 16, [NVTX_MODULE_SYNC] = 7,
};

/* What the tool puts in, and what it is called as. */
static union {
    nvtx_function any;
    void *(*create)(const char *name);
} domain_create;
static union {
    nvtx_function any;
    int (*push)(void *domain, const nvtx_event *event);
} range_push;
static union {
    nvtx_function any;
    int (*pop)(void *domain);
} range_pop;
static nvtx_function ignored; /* where the tool's other functions go */
static nvtx_function *tables[NVTX_MODULES][MOST_SLOTS];
static void *domain;
static int attached; /* written once, before the first range */

/* ---- what the tool asks for -------------------------------------------------------------- */

static int show_table(int module, nvtx_function ***table_p, unsigned *size_p)
{
    if (module < NVTX_MODULE_CORE || module >= NVTX_MODULES)
        return 0;
    if (size_p != NULL)
        *size_p = sizes[module];
    if (table_p != NULL)
        *table_p = tables[module];
    return 1;
}

static void hear_version(uint32_t version)
{
    (void)version;
}

static const void *show(uint32_t id)
{
    static const nvtx_callbacks callbacks = {sizeof callbacks, show_table};
    static const nvtx_version version = {sizeof version, NVTX_VERSION_3, 0, hear_version};

    return id == NVTX_EXPORT_CALLBACKS ? (const void *)&callbacks
           : id == NVTX_EXPORT_VERSION ? (const void *)&version
                                       : NULL;
}

/* ---- attaching ----------------------------------------------------------------------------- */

static void make_tables(void)
{
    for (int module = NVTX_MODULE_CORE; module < NVTX_MODULES; module++) {
        for (unsigned i = 1; i < sizes[module]; i++)
            tables[module][i] = &ignored;
    }
    tables[NVTX_MODULE_CORE2][NVTX_CORE2_DOMAIN_CREATE] = &domain_create.any;
    tables[NVTX_MODULE_CORE2][NVTX_CORE2_RANGE_PUSH] = &range_push.any;
    tables[NVTX_MODULE_CORE2][NVTX_CORE2_RANGE_POP] = &range_pop.any;
}

/* The tool stays for the life of the process. */
static void attach(void)
{
    const char *file = getenv("NVTX_INJECTION64_PATH");
    int (*begin)(const void *(*show)(uint32_t id));
    void *library, *found;

    if (file == NULL || file[0] == '\0')
        return;
    library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    found = library != NULL ? dlsym(library, "InitializeInjectionNvtx2") : NULL;
    if (found == NULL) {
        oriel_log(ORIEL_LOG_INFO, "NVTX_INJECTION64_PATH=%s is no tool: no ranges", file);
        return;
    }
    make_tables();
    memcpy(&begin, &found, sizeof begin);
    if (begin(show) == 0 || range_push.push == NULL || range_pop.pop == NULL) {
        oriel_log(ORIEL_LOG_INFO, "%s wants no NVTX ranges", file);
        return;
    }
    domain = domain_create.create != NULL ? domain_create.create("oriel") : NULL;
    attached = 1;
}

void oriel_nvtx_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, attach);
}

/* ---- ranges -------------------------------------------------------------------------------- */

void oriel_nvtx_push(const char *name, uint64_t bytes, int ranks)
{
    /* Tools may look at the text as long as the range is open. */
    static _Thread_local char text[128];
    nvtx_event event = {.version = NVTX_VERSION_3,
                        .size = sizeof event,
                        .payload_type = NVTX_PAYLOAD_U64,
                        .payload = bytes,
                        .message_type = NVTX_MESSAGE_ASCII,
                        .message = text};

    if (!attached)
        return;
    snprintf(text, sizeof text, "oriel.%s, %" PRIu64 " bytes, %d ranks", name, bytes, ranks);
    range_push.push(domain, &event);
}

void oriel_nvtx_pop(void)
{
    if (attached)
        range_pop.pop(domain);
}
