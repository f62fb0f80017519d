/* A tool for NVTX that writes the ranges down, for tests/unit/fabric/test_nvtx.c. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "fabric/cuda/nvtx.h"

char fake_nvtx_text[1024];

static void note(const char *what, const char *text)
{
    size_t used = strlen(fake_nvtx_text);

    snprintf(fake_nvtx_text + used, sizeof fake_nvtx_text - used, "%s%s\n", what, text);
}

static void *create(const char *name)
{
    note("domain ", name);
    return fake_nvtx_text;
}

static int push(void *domain, const nvtx_event *event)
{
    char text[256];

    snprintf(text, sizeof text, "%s, payload %llu%s", event->message,
             (unsigned long long)event->payload, domain == fake_nvtx_text ? "" : ", no domain");
    note("push ", event->size == sizeof *event ? text : "of a wrong size");
    return 0;
}

static int pop(void *domain)
{
    (void)domain;
    note("pop", "");
    return 0;
}

int InitializeInjectionNvtx2(const void *(*show)(uint32_t id));
int InitializeInjectionNvtx2(const void *(*show)(uint32_t id))
{
    const nvtx_callbacks *callbacks = show(NVTX_EXPORT_CALLBACKS);
    nvtx_function **table;
    unsigned size = 0;

    if (show(NVTX_EXPORT_VERSION) == NULL || show(99) != NULL || callbacks->table(99, NULL, NULL))
        return 0;
    for (int module = NVTX_MODULE_CORE; module < NVTX_MODULES; module++) {
        if (!callbacks->table(module, &table, &size))
            return 0;
        for (unsigned i = 1; i < size; i++)
            *table[i] = NULL;
    }
    if (!callbacks->table(NVTX_MODULE_CORE2, &table, &size) || size != 16)
        return 0;
    *table[NVTX_CORE2_DOMAIN_CREATE] = (nvtx_function)create;
    *table[NVTX_CORE2_RANGE_PUSH] = (nvtx_function)push;
    *table[NVTX_CORE2_RANGE_POP] = (nvtx_function)pop;
    return 1;
}
