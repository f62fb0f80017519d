#include "doctor/windows.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN = 8 };

/* ---- the arena's memory ------------------------------------------------------------------- */

struct arena {
    off_t bytes;     /* of its file */
    ino_t inode;     /* of the file that has as many; 0: none was found */
    long long taken; /* of memory */
    int several;     /* files have: another comm's is one of them */
};

static void look_at_file(int folder, const char *name, struct arena *arena)
{
    char target[64];
    struct stat file;
    ssize_t n = readlinkat(folder, name, target, sizeof target - 1);

    if (n < 0)
        return;
    target[n] = '\0';
    if (strncmp(target, "/memfd:oriel", strlen("/memfd:oriel")) != 0 ||
        fstatat(folder, name, &file, 0) != 0 || file.st_size != arena->bytes)
        return;
    arena->several |= arena->inode != 0 && arena->inode != file.st_ino;
    arena->inode = file.st_ino;
    arena->taken = (long long)file.st_blocks * 512;
}

static void look_at_process(pid_t pid, struct arena *arena)
{
    char path[64];
    const struct dirent *entry;
    DIR *folder;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    folder = opendir(path);
    if (folder == NULL)
        return;
    while ((entry = readdir(folder)) != NULL)
        look_at_file(dirfd(folder), entry->d_name, arena);
    closedir(folder);
}

/* Nothing in the heap says which file it is: its length does, unless two comms have as much. */
static long long arena_taken(const oriel_comm_view *comm, const heap_memory *memory)
{
    const heap_header *h = comm->heap.header;
    struct arena arena = {.bytes =
                              (off_t)((memory->area_bytes + memory->window_bytes) * h->num_ranks)};

    for (uint32_t p = 0; p < h->num_processes && arena.inode == 0; p++) {
        if (comm->processes[p].state == ORIEL_PROCESS_ALIVE ||
            comm->processes[p].state == ORIEL_PROCESS_STOPPED)
            look_at_process(comm->processes[p].pid, &arena);
    }
    return arena.inode == 0 || arena.several ? -1 : arena.taken;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int read_all(int fd, void *buffer, size_t bytes, uint64_t from)
{
    size_t got = 0;

    while (got < bytes) {
        ssize_t n = pread(fd, (char *)buffer + got, bytes - got, (off_t)(from + got));

        if (n <= 0)
            return -1;
        got += (size_t)n;
    }
    return 0;
}

static int compare_windows(const void *a, const void *b)
{
    const heap_window *left = *(const heap_window *const *)a;
    const heap_window *right = *(const heap_window *const *)b;

    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? 1 : -1;
    return (left->number > right->number) - (left->number < right->number);
}

static void list_windows(oriel_windows_view *view)
{
    const heap_table *table = &view->memory->table;

    for (uint32_t i = 0; i < table->used; i++) {
        const heap_window *window = &table->windows[i];

        if (window->number == 0 || window->held == 0)
            continue;
        view->list[view->count++] = window;
        view->bytes += (double)window->bytes * window->ranks;
    }
    if (view->count > 0)
        qsort(view->list, (size_t)view->count, sizeof(heap_window *), compare_windows);
}

int oriel_windows_take(const oriel_comm_view *comm, oriel_windows_view *view_p)
{
    const heap_header *h = comm->heap.header;
    size_t head = offsetof(heap_memory, table.windows);
    oriel_windows_view view = {.taken = -1, .num_processes = (int)h->num_processes};
    heap_table *table;

    view.memory = calloc(1, sizeof *view.memory);
    view.list = calloc(TABLE_STRETCHES, sizeof(heap_window *));
    if (view.memory == NULL || view.list == NULL ||
        read_all(comm->fd, view.memory, head, h->at[SECTION_MEMORY]) != 0)
        goto err_free;
    table = &view.memory->table;
    if (table->used > TABLE_STRETCHES) /* a job that writes astray must not lead us astray */
        table->used = TABLE_STRETCHES;
    if (read_all(comm->fd, table->windows, table->used * sizeof *table->windows,
                 h->at[SECTION_MEMORY] + head) != 0)
        goto err_free;
    list_windows(&view);
    view.taken = arena_taken(comm, view.memory);
    *view_p = view;
    return 0;

err_free:
    oriel_windows_view_free(&view);
    return -1;
}

void oriel_windows_view_free(oriel_windows_view *view)
{
    free(view->memory);
    free(view->list);
}

int oriel_windows_missing(const oriel_windows_view *view, int process, uint64_t *bytes_p)
{
    const heap_table *table = &view->memory->table;

    for (int i = 0; i < TABLE_MEETINGS; i++) {
        const heap_meeting *meeting = &table->meetings[i];
        int missing = oriel_making_missing(meeting);

        if (table->keys[i] == 0 || missing < 0 || missing >= view->num_processes ||
            !(meeting->who[process / 64] >> process % 64 & 1))
            continue;
        *bytes_p = meeting->bytes;
        return missing;
    }
    return -1;
}

/* ---- printing ------------------------------------------------------------------------------ */

static int holds(const heap_window *window, int process)
{
    return (int)(window->who[process / 64] >> process % 64 & 1);
}

/* "0-3, 7" */
static void print_holders(const oriel_windows_view *view, const heap_window *window)
{
    int said = 0;

    for (int p = 0; p < view->num_processes; p++) {
        int last = p;

        if (!holds(window, p))
            continue;
        while (last + 1 < view->num_processes && holds(window, last + 1))
            last++;
        printf("%s%d", said++ > 0 ? ", " : "", p);
        if (last > p)
            printf(last > p + 1 ? "-%d" : ", %d", last);
        p = last;
    }
}

void oriel_windows_print(const oriel_windows_view *view)
{
    if (view->count == 0)
        return;
    printf("\n%d window%s, %.0f bytes on all ranks", view->count, view->count > 1 ? "s" : "",
           view->bytes);
    if (view->taken >= 0)
        printf("; with what kernels share, %lld bytes of memory are taken", view->taken);
    printf("\n%8s  %5s  %16s  %s\n", "window", "ranks", "bytes of each", "held by processes");
    for (int i = 0; i < view->count && i < SHOWN; i++) {
        const heap_window *window = view->list[i];

        printf("%8llu  %5u  %16llu  ", (unsigned long long)window->number, window->ranks,
               (unsigned long long)window->bytes);
        print_holders(view, window);
        printf("\n");
    }
    if (view->count > SHOWN)
        printf("%8s  %d that are no larger\n", "...", view->count - SHOWN);
}

void oriel_windows_print_json(const oriel_windows_view *view)
{
    printf("{\"count\": %d, \"bytes\": %.0f, \"taken\": ", view->count, view->bytes);
    if (view->taken >= 0)
        printf("%lld", view->taken);
    else
        printf("null");
    printf(", \"largest\": [");
    for (int i = 0; i < view->count && i < SHOWN; i++) {
        const heap_window *window = view->list[i];
        const char *before = "";

        printf("%s\n  {\"number\": %llu, \"ranks\": %u, \"bytes\": %llu, \"processes\": [",
               i > 0 ? "," : "", (unsigned long long)window->number, window->ranks,
               (unsigned long long)window->bytes);
        for (int p = 0; p < view->num_processes; p++) {
            if (!holds(window, p))
                continue;
            printf("%s%d", before, p);
            before = ", ";
        }
        printf("]}");
    }
    printf("]}");
}
