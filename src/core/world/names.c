#include "core/world/names.h"

#include <stdio.h>
#include <string.h>

enum { WRITTEN = 1 };

/* The entry of `identity`, or a free one; NULL: the table is full. */
static heap_name *entry_of(const oriel_heap *heap, uint64_t identity)
{
    heap_name *names = heap->section[SECTION_NAMES];

    for (uint32_t i = 0; i < HEAP_NAMES; i++) {
        heap_name *entry = &names[(identity + i) % HEAP_NAMES];
        uint64_t found = atomic_load_explicit(&entry->identity, memory_order_relaxed);

        if (found == identity || found == 0)
            return entry;
    }
    return NULL;
}

int oriel_name_known(const oriel_heap *heap, uint64_t identity)
{
    const heap_name *entry = entry_of(heap, identity);

    return entry == NULL ||
           atomic_load_explicit(&entry->identity, memory_order_relaxed) == identity;
}

/* The process that takes the entry writes the text; until that is there, the name is a number. */
void oriel_name_keep(const oriel_heap *heap, uint64_t identity, const char *text)
{
    heap_name *entry;
    uint64_t none;

    do {
        entry = entry_of(heap, identity);
        if (entry == NULL || atomic_load(&entry->identity) == identity)
            return;
        none = 0;
    } while (!atomic_compare_exchange_strong(&entry->identity, &none, identity));
    snprintf(entry->text, sizeof entry->text, "%s", text);
    atomic_store_explicit(&entry->written, WRITTEN, memory_order_release);
}

/* NULL: no rank has said it. */
static const char *text_of(const oriel_heap *heap, uint64_t identity)
{
    const heap_name *entry = identity != 0 ? entry_of(heap, identity) : NULL;

    return entry != NULL && atomic_load(&entry->identity) == identity &&
                   atomic_load_explicit(&entry->written, memory_order_acquire) == WRITTEN
               ? entry->text
               : NULL;
}

void oriel_name_find(const oriel_heap *heap, uint64_t identity, char *out, size_t len)
{
    const char *text = text_of(heap, identity);

    if (text != NULL)
        snprintf(out, len, "%s", text);
    else
        snprintf(out, len, "kernel %016llx", (unsigned long long)identity);
}

void oriel_name_place(const oriel_heap *heap, uint64_t call, char *out, size_t len)
{
    const char *text = text_of(heap, call);

    if (text != NULL)
        snprintf(out, len, " at %.*s", (int)strcspn(text, "\n"), text);
    else
        snprintf(out, len, "%s", "");
}

/* "jit_step calls ...", of a call with a name; NULL: it is not known. */
static const char *program_of(const oriel_heap *heap, uint64_t call)
{
    const char *text = text_of(heap, call);
    const char *end = text != NULL ? strchr(text, '\n') : NULL;

    return end != NULL ? end + 1 : NULL;
}

/* A call over ranks, " calls over ranks 0, 2 ...", is of a program of this rank's own. */
int oriel_name_rivals(const oriel_heap *heap, uint64_t a, uint64_t b)
{
    const char *first = program_of(heap, a);
    const char *second = program_of(heap, b);
    size_t name;

    if (first == NULL || second == NULL || strcmp(first, second) == 0)
        return 0;
    name = strcspn(first, " ") + 1;
    return strncmp(first, second, name) == 0 && strstr(first, " calls over ") == NULL &&
           strstr(second, " calls over ") == NULL;
}

/* From the first call that differs on; the calls lie between semicolons. */
static void write_rest(const char *program, size_t same, char *out, size_t len)
{
    const char *calls = strstr(program, " calls ");
    size_t name = calls != NULL ? (size_t)(calls - program) : 0;

    while (same > 0 && !(program[same - 1] == ';' || same == name + strlen(" calls ")))
        same--;
    if (calls == NULL || same == 0)
        snprintf(out, len, "%s", program);
    else
        snprintf(out, len, "%.*s calls %s%s", (int)name, program,
                 program[same - 1] == ';' ? "..." : "",
                 program[same] != '\0' ? program + same : "nothing more");
}

/* What differs in the programs of two calls. Returns 0 where that is not known. */
static int tell_programs(const oriel_heap *heap, uint64_t a, uint64_t b, char *first, char *second,
                         size_t len)
{
    const char *texts[] = {program_of(heap, a), program_of(heap, b)};
    size_t same = 0;

    if (texts[0] == NULL || texts[1] == NULL)
        return 0;
    while (texts[0][same] != '\0' && texts[0][same] == texts[1][same])
        same++;
    write_rest(texts[0], same, first, len);
    write_rest(texts[1], same, second, len);
    return strcmp(texts[0], texts[1]) != 0;
}

uint64_t oriel_name_at(const oriel_heap *heap, uint32_t i)
{
    const heap_name *names = heap->section[SECTION_NAMES];

    return atomic_load_explicit(&names[i].identity, memory_order_relaxed);
}

void oriel_comm_abort_different(oriel_comm *comm, const oriel_asked *a, const oriel_asked *b)
{
    int process = comm->heap.ranks[b->rank].process;
    char first[HEAP_TEXT / 4];
    char second[HEAP_TEXT / 4];

    if (strcmp(a->what, b->what) != 0)
        oriel_comm_abort(comm, ORIEL_ERR_MISMATCH, b->rank, process,
                         "rank %d asked for %s, rank %d for %s", a->rank, a->what, b->rank,
                         b->what);
    else if (tell_programs(&comm->heap, a->call, b->call, first, second, sizeof first))
        oriel_comm_abort(comm, ORIEL_ERR_MISMATCH, b->rank, process,
                         "ranks %d and %d both asked for %s, but their programs differ: %s on rank "
                         "%d, %s on rank %d",
                         a->rank, b->rank, a->what, first, a->rank, second, b->rank);
    else if (a->call == b->call && a->execution != b->execution)
        oriel_comm_abort(comm, ORIEL_ERR_MISMATCH, b->rank, process,
                         "ranks %d and %d both asked for %s, rank %d in execution %u of the "
                         "program, rank %d in execution %u: a loop or branch around the call went "
                         "another way on one of them, or several threads launch the function",
                         a->rank, b->rank, a->what, a->rank, a->execution, b->rank, b->execution);
    else
        oriel_comm_abort(comm, ORIEL_ERR_MISMATCH, b->rank, process,
                         "ranks %d and %d both asked for %s with different attributes", a->rank,
                         b->rank, a->what);
}
