/* NCCL's half of facts.h. */
#include "doctor/facts.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "fabric/nccl/library.h"

/* Looks for "+cuda13.0" in what is mapped of one library. */
struct search {
    const void *base; /* where the library was loaded */
    int cuda;         /* what it was built for: 1300; 0: not found */
};

static int search_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    static const char mark[] = "+cuda";
    struct search *search = arg;
    int major = 0;
    int minor = 0;

    (void)size;
    if ((const void *)info->dlpi_addr != search->base)
        return 0;
    for (int i = 0; i < info->dlpi_phnum && major == 0; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const char *at = (const char *)info->dlpi_addr + part->p_vaddr;
        const char *found = NULL;

        if (part->p_type == PT_LOAD && (part->p_flags & PF_R))
            found = memmem(at, part->p_filesz, mark, sizeof mark - 1);
        if (found != NULL && sscanf(found + sizeof mark - 1, "%d.%d", &major, &minor) == 2)
            search->cuda = 100 * major + minor;
    }
    return 1;
}

static int cuda_of(const void *slot)
{
    struct search search = {0};
    Dl_info info;
    void *function;

    memcpy(&function, slot, sizeof function);
    if (dladdr(function, &info) == 0)
        return 0;
    search.base = info.dli_fbase;
    dl_iterate_phdr(search_library, &search);
    return search.cuda;
}

void oriel_nccl_find(oriel_nccl_facts *facts_p)
{
    oriel_nccl_facts *facts = facts_p;
    const nccl_library *nccl;

    memset(facts, 0, sizeof *facts);
    if (oriel_nccl_open(&nccl) != ORIEL_OK) {
        snprintf(facts->problem, sizeof facts->problem, "%s", oriel_last_error());
        return;
    }
    facts->library = (oriel_library_facts){.major = nccl->version / 10000,
                                           .minor = nccl->version / 100 % 100,
                                           .patch = nccl->version % 100};
    snprintf(facts->library.file, sizeof facts->library.file, "%s", nccl->file);
    facts->cuda = cuda_of(&nccl->get_version);
    facts->config = NCCL_CONFIG_VERSION;
    facts->shares_gpu = nccl->version >= NCCL_SHARES_GPU;
    facts->sizes_differ = nccl->version >= NCCL_SIZES_DIFFER;
    facts->host_pointers = nccl->lsa_pointer != NULL;
    facts->bounded_barrier = nccl->version >= NCCL_BOUNDED_BARRIER;
}
