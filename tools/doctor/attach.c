#include "doctor/attach.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "core/start/sections.h"

static const char heap_link[] = "/memfd:oriel ";

enum { BETWEEN_LOOKS_MS = 200 };

/* ---- /proc ------------------------------------------------------------------ */

/* State letter and parent of a process; -1 when it is gone. */
static int read_stat(pid_t pid, char *state_p, pid_t *parent_p)
{
    char path[64];
    char text[512];
    const char *after;
    FILE *file;
    size_t n;
    int parent;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        return -1;
    n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    /* The name before it may hold anything, also brackets. */
    after = strrchr(text, ')');
    if (after == NULL || sscanf(after + 1, " %c %d", state_p, &parent) != 2)
        return -1;
    *parent_p = (pid_t)parent;
    return 0;
}

static uid_t owner_of(pid_t pid)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return stat(path, &st) == 0 ? st.st_uid : (uid_t)-1;
}

struct relation {
    pid_t pid;    /* a process */
    pid_t parent; /* the one that started it */
};

/* All processes; the caller frees the list. */
static struct relation *list_processes(size_t *count_p)
{
    struct relation *list = NULL;
    size_t count = 0;
    size_t room = 0;
    DIR *proc = opendir("/proc");
    const struct dirent *entry;

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        char state;

        if (pid <= 0)
            continue;
        if (count == room) {
            struct relation *more = realloc(list, (room + 256) * 2 * sizeof *list);

            if (more == NULL)
                break;
            list = more;
            room = (room + 256) * 2;
        }
        list[count].pid = pid;
        count += read_stat(pid, &state, &list[count].parent) == 0;
    }
    if (proc != NULL)
        closedir(proc);
    *count_p = count;
    return list;
}

static int compare_pids(const void *a, const void *b)
{
    const struct relation *left = a;
    const struct relation *right = b;

    return (left->pid > right->pid) - (left->pid < right->pid);
}

/* `list` is sorted. Its parents are of different moments, so a circle is possible. */
static int is_below(const struct relation *list, size_t count, const struct relation *process,
                    pid_t ancestor)
{
    for (size_t steps = 0; process != NULL && steps < count; steps++) {
        struct relation parent = {.pid = process->parent};

        if (process->parent == ancestor)
            return 1;
        process = bsearch(&parent, list, count, sizeof *list, compare_pids);
    }
    return 0;
}

/* ---- one comm ----------------------------------------------------------------- */

static int read_at(int fd, void *buffer, size_t bytes)
{
    size_t got = 0;

    while (got < bytes) {
        ssize_t n = pread(fd, (char *)buffer + got, bytes - got, (off_t)got);

        if (n <= 0 && !(n < 0 && errno == EINTR))
            return -1;
        got += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* A process of a comm holds the lock on its byte as long as it lives. */
static oriel_process_view view_process(int fd, const heap_header *header, const heap_proc *proc,
                                       int number)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = number, .l_len = 1};
    oriel_process_view view = {.state = ORIEL_PROCESS_ALIVE, .pid = proc->pid};
    int held = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    uint32_t state = proc->state;
    pid_t parent;
    char letter;

    if (held && lock.l_pid > 0)
        view.pid = lock.l_pid;
    if (state == PROC_LEFT)
        view.state = ORIEL_PROCESS_LEFT;
    else if (proc->machine != (int)header->machine)
        view.state = state == PROC_DEAD ? ORIEL_PROCESS_DEAD : ORIEL_PROCESS_ELSEWHERE;
    else if (!held)
        view.state = state == PROC_ABSENT ? ORIEL_PROCESS_STARTING : ORIEL_PROCESS_DEAD;
    else if (read_stat(view.pid, &letter, &parent) == 0 && (letter == 'T' || letter == 't'))
        view.state = ORIEL_PROCESS_STOPPED;
    return view;
}

static void view_free(oriel_comm_view *view)
{
    free(view->heap.segment.base);
    free(view->processes);
    free(view->traced_before);
    if (view->fd >= 0)
        close(view->fd);
}

/* Reads everything anew; what was read before stays in `traced_before`. */
static int view_refresh(oriel_comm_view *view)
{
    const heap_header *h = view->heap.header;
    const heap_header before = *h;

    for (uint32_t r = 0; r < h->num_ranks; r++)
        view->traced_before[r] = view->heap.ranks[r].traced;
    view->taken = oriel_now();
    /* The layout never changes; a job that writes astray must not lead us astray. */
    errno = EINVAL;
    if (read_at(view->fd, view->heap.segment.base, before.at[SECTION_BUCKETS]) != 0 ||
        h->num_ranks != before.num_ranks || h->num_processes != before.num_processes)
        return -1;
    for (int p = 0; p < (int)h->num_processes; p++)
        view->processes[p] = view_process(view->fd, h, &view->heap.procs[p], p);
    return 0;
}

/* Takes `fd` on success; -1 when the file is no heap of this version. */
static int view_take(int fd, const struct stat *file, oriel_comm_view *view_p)
{
    oriel_segment segment = {.bytes = (size_t)file->st_size, .fd = -1};
    oriel_comm_view view = {.inode = file->st_ino, .fd = -1};
    heap_header header;

    if (segment.bytes < sizeof header || read_at(fd, &header, sizeof header) != 0)
        return -1;
    segment.base = &header;
    if (oriel_heap_open(oriel_heap_rooms, segment, &view.heap) != ORIEL_OK)
        return -1;
    segment.base = malloc(header.at[SECTION_BUCKETS]);
    view.heap.segment.base = segment.base;
    view.processes = calloc(header.num_processes, sizeof *view.processes);
    view.traced_before = calloc(header.num_ranks, sizeof *view.traced_before);
    if (segment.base == NULL || view.processes == NULL || view.traced_before == NULL ||
        read_at(fd, segment.base, header.at[SECTION_BUCKETS]) != 0) {
        view_free(&view);
        return -1;
    }
    oriel_heap_open(oriel_heap_rooms, segment, &view.heap);
    view.fd = fd;
    *view_p = view;
    return 0;
}

/* ---- the comms of one process --------------------------------------------------- */

static int is_known(const oriel_views *views, ino_t inode)
{
    for (int i = 0; i < views->count; i++) {
        if (views->comms[i].inode == inode)
            return 1;
    }
    return 0;
}

static void add_file(oriel_views *views, const char *path)
{
    char target[64];
    struct stat file;
    ssize_t n = readlink(path, target, sizeof target - 1);
    int fd;

    if (n < 0)
        return;
    target[n] = '\0';
    if (strncmp(target, heap_link, strlen(heap_link)) != 0)
        return;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &file) == 0 && !is_known(views, file.st_ino) && views->count < ORIEL_VIEWS_MAX &&
        view_take(fd, &file, &views->comms[views->count]) == 0)
        views->count++;
    else
        close(fd);
}

/* -1 and errno when the process does not let us look. */
static int add_process(oriel_views *views, pid_t pid)
{
    char path[320];
    const struct dirent *entry;
    DIR *folder;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    folder = opendir(path);
    if (folder == NULL)
        return -1;
    while ((entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, entry->d_name);
        add_file(views, path);
    }
    closedir(folder);
    return 0;
}

static void add_descendants(oriel_views *views, pid_t pid)
{
    size_t count;
    struct relation *list = list_processes(&count);

    if (count > 0)
        qsort(list, count, sizeof *list, compare_pids);
    for (size_t i = 0; i < count; i++) {
        if (is_below(list, count, &list[i], pid) && owner_of(list[i].pid) == geteuid())
            add_process(views, list[i].pid);
    }
    free(list);
}

int oriel_views_take(pid_t pid, oriel_views *views, char *why, size_t bytes)
{
    uid_t owner = owner_of(pid);

    views->count = 0;
    if (owner == (uid_t)-1) {
        snprintf(why, bytes, "there is no process %d", (int)pid);
        return -1;
    }
    if (owner != geteuid()) {
        snprintf(why, bytes, "process %d belongs to user %u, not to user %u who asks", (int)pid,
                 (unsigned)owner, (unsigned)geteuid());
        return -1;
    }
    if (add_process(views, pid) != 0) {
        snprintf(why, bytes, "process %d does not let itself be looked at: %s", (int)pid,
                 strerror(errno));
        return -1;
    }
    if (views->count == 0)
        add_descendants(views, pid);
    if (views->count == 0) {
        snprintf(why, bytes,
                 "neither process %d nor a process below it has a comm of oriel %s at the moment",
                 (int)pid, ORIEL_VERSION_STRING);
        return -1;
    }
    poll(NULL, 0, BETWEEN_LOOKS_MS);
    for (int i = 0; i < views->count; i++) {
        if (view_refresh(&views->comms[i]) != 0) {
            snprintf(why, bytes, "the heap of process %d cannot be read: %s", (int)pid,
                     strerror(errno));
            oriel_views_free(views);
            return -1;
        }
    }
    return 0;
}

void oriel_views_free(oriel_views *views)
{
    for (int i = 0; i < views->count; i++)
        view_free(&views->comms[i]);
    views->count = 0;
}
