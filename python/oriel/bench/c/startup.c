/* One process of a job that only starts. Prints, on one line: when main began and
 * when oriel_comm_create returned (seconds of a clock that all processes of the
 * machine share), and the bytes that came with it: private memory, this process's
 * share of the heap's pages that are there, those of them it has mapped, and the
 * heap as a whole; last, how often it read the memory of a process. */
#include <oriel/oriel.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static atomic_long reads;

/* Stands before libc's, for the library too. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long num_to,
                         const struct iovec *from, unsigned long num_from, unsigned long flags)
{
    atomic_fetch_add(&reads, 1);
    return syscall(SYS_process_vm_readv, pid, to, num_to, from, num_from, flags);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The bytes of a line "name:   123 kB" in a file of /proc/self. */
static long proc_bytes(const char *path, const char *name)
{
    FILE *file = fopen(path, "r");
    char line[256];
    long kib = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            kib = atol(line + strlen(name) + 1);
    }
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

/* The bytes of oriel's memory that this process maps. */
static long heap_bytes(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    long bytes = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned long begin, end;

        if (strstr(line, "memfd:oriel") != NULL && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            bytes += (long)(end - begin);
    }
    if (file != NULL)
        fclose(file);
    return bytes;
}

int main(void)
{
    double begun = now();
    long private_before = proc_bytes("/proc/self/status", "RssAnon");
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    oriel_comm *comm;
    double ended;
    long num_reads;

    if (oriel_comm_create(&params, &comm) != ORIEL_OK) {
        fprintf(stderr, "startup: %s\n", oriel_last_error());
        return 1;
    }
    ended = now();
    num_reads = atomic_load(&reads);
    printf("startup %d %.6f %.6f %ld %ld %ld %ld %ld\n", oriel_comm_process(comm), begun, ended,
           proc_bytes("/proc/self/status", "RssAnon") - private_before,
           proc_bytes("/proc/self/smaps_rollup", "Pss_Shmem"),
           proc_bytes("/proc/self/status", "RssShmem"), heap_bytes(), num_reads);
    fflush(stdout);
    /* Nobody leaves before all have counted: a page's share depends on which have it. */
    if (oriel_comm_barrier(comm) != ORIEL_OK)
        return 1;
    return oriel_comm_destroy(comm) == ORIEL_OK ? 0 : 1;
}
