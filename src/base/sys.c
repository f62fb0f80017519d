#include "base/sys.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Threads of the pool complete XLA's futures, and that runs the rest of XLA's
 * program on them: they need the stack XLA's own threads have. Only touched
 * pages cost memory. */
static const size_t thread_stack_bytes = (size_t)8 << 20;

static void *real_alloc(size_t bytes)
{
    return calloc(1, bytes > 0 ? bytes : 1);
}

static int real_memfd(const char *name)
{
    return memfd_create(name, MFD_CLOEXEC);
}

static int real_truncate(int fd, off_t bytes)
{
    return (int)TEMP_FAILURE_RETRY(ftruncate(fd, bytes));
}

static off_t real_file_bytes(int fd)
{
    struct stat found;

    return fstat(fd, &found) == 0 ? found.st_size : -1;
}

static void *real_map(size_t bytes, int fd)
{
    void *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (addr == MAP_FAILED)
        return NULL;
    /* To dump it, the kernel would first give memory to every page that nobody has touched. */
    madvise(addr, bytes, MADV_DONTDUMP);
    return addr;
}

static void real_unmap(void *addr, size_t bytes)
{
    munmap(addr, bytes);
}

static void real_forget(void *addr, size_t bytes)
{
    if (madvise(addr, bytes, MADV_REMOVE) != 0)
        memset(addr, 0, bytes);
}

static void real_advise_huge(void *addr, size_t bytes)
{
    madvise(addr, bytes, MADV_HUGEPAGE);
}

static ssize_t real_read_memory(pid_t pid, const struct iovec *to, const struct iovec *from, int n)
{
    return process_vm_readv(pid, to, (unsigned long)n, from, (unsigned long)n, 0);
}

static int real_socket(int domain, int type, int protocol)
{
    return socket(domain, type | SOCK_CLOEXEC, protocol);
}

static int real_accept(int fd)
{
    return accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static ssize_t real_sendmsg(int fd, const struct msghdr *msg)
{
    return TEMP_FAILURE_RETRY(sendmsg(fd, msg, MSG_NOSIGNAL));
}

static ssize_t real_recvmsg(int fd, struct msghdr *msg)
{
    return TEMP_FAILURE_RETRY(recvmsg(fd, msg, MSG_CMSG_CLOEXEC));
}

/* A signal counts as "nothing yet": restarting with the full timeout would let
 * a stream of signals push the caller's deadline away for ever. */
static int real_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    int rc = poll(fds, n, timeout_ms);

    if (rc < 0 && errno == EINTR) {
        for (nfds_t i = 0; i < n; i++)
            fds[i].revents = 0;
        return 0;
    }
    return rc;
}

static int real_eventfd(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static int real_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int real_signal(int eventfd)
{
    const uint64_t one = 1;

    return TEMP_FAILURE_RETRY(write(eventfd, &one, sizeof(one))) == (ssize_t)sizeof(one) ? 0 : -1;
}

/* Classic record locks belong to the process: the kernel drops them when it
 * dies, a forked child does not hold them, and so they tell which are alive. They
 * are also dropped when the process closes any descriptor of the same file. */
static int byte_lock(int fd, int command, off_t byte, struct flock *lock)
{
    *lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, command, lock);
}

static int real_lock_byte(int fd, off_t byte)
{
    struct flock lock;

    return byte_lock(fd, F_SETLK, byte, &lock);
}

static int real_locked_byte(int fd, off_t byte)
{
    struct flock lock;

    if (byte_lock(fd, F_GETLK, byte, &lock) < 0)
        return -1;
    return lock.l_type != F_UNLCK;
}

/* Signals are the application's: oriel's threads never run its handlers. */
static int real_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int error;

    error = pthread_attr_init(&attr);
    if (error != 0) {
        errno = error;
        return -1;
    }
    pthread_attr_setstacksize(&attr, thread_stack_bytes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attr, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (error != 0) {
        errno = error;
        return -1;
    }
    return 0;
}

static int real_random(void *buf, size_t bytes)
{
    unsigned char *at = buf;

    while (bytes > 0) {
        ssize_t n = getrandom(at, bytes, 0);

        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        }
    }
    return 0;
}

static int real_read_line(const char *path, char *line, size_t len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return -1;
    n = TEMP_FAILURE_RETRY(read(fd, line, len - 1));
    close(fd);
    if (n < 0)
        return -1;
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return 0;
}

static int real_read_link(const char *path, char *target, size_t len)
{
    ssize_t n = readlink(path, target, len - 1);

    if (n < 0)
        return -1;
    target[n] = '\0';
    return 0;
}

static ssize_t real_read_file(const char *path, void *data, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;
    ssize_t n = fd < 0 ? -1 : 1;

    while (n > 0 && have < capacity) {
        n = read(fd, (char *)data + have, capacity - have);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            have += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    return n == 0 ? (ssize_t)have : -1;
}

static int write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);

        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
    return 0;
}

/* A file of another name becomes this one in one step: readers see all or nothing. */
static int real_write_file(const char *path, const void *data, size_t bytes)
{
    char other[PATH_MAX];
    char *slash;
    int failed;
    int fd;

    if (snprintf(other, sizeof other, "%s", path) + 8 > PATH_MAX)
        return -1;
    for (slash = strchr(other + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(other, 0700);
        *slash = '/';
    }
    strcat(other, ".XXXXXX");
    fd = mkostemp(other, O_CLOEXEC);
    if (fd < 0)
        return -1;
    failed = write_all(fd, data, bytes) != 0;
    failed |= close(fd) != 0;
    failed = failed || rename(other, path) != 0;
    if (failed)
        unlink(other);
    return failed ? -1 : 0;
}

static struct timespec timespec_from(double seconds)
{
    const double longest = 1e9; /* keeps the conversion in range */
    struct timespec ts;

    if (!(seconds > 0))
        seconds = 0;
    if (seconds > longest)
        seconds = longest;
    ts.tv_sec = (time_t)seconds;
    ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
    return ts;
}

/* Shared, not private: the word may lie in memory of several processes. */
static int real_futex_wait(_Atomic uint32_t *word, uint32_t expected, double seconds)
{
    struct timespec timeout = timespec_from(seconds);
    long rc = syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, NULL, 0);

    return rc < 0 && errno == ETIMEDOUT;
}

static void real_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int real_get_robust(struct robust_list_head **head_p)
{
    size_t bytes;

    return (int)syscall(SYS_get_robust_list, 0, head_p, &bytes);
}

static int real_set_robust(struct robust_list_head *head)
{
    return (int)syscall(SYS_set_robust_list, head, sizeof *head);
}

const oriel_sys oriel_sys_real = {
    .alloc = real_alloc,
    .release = free,
    .memfd = real_memfd,
    .truncate = real_truncate,
    .file_bytes = real_file_bytes,
    .map = real_map,
    .unmap = real_unmap,
    .forget = real_forget,
    .advise_huge = real_advise_huge,
    .read_memory = real_read_memory,
    .close = close,
    .socket = real_socket,
    .bind = bind,
    .listen = listen,
    .accept = real_accept,
    .connect = connect,
    .getsockopt = getsockopt,
    .getsockname = getsockname,
    .resolve = getaddrinfo,
    .interfaces = getifaddrs,
    .sendmsg = real_sendmsg,
    .recvmsg = real_recvmsg,
    .poll = real_poll,
    .eventfd = real_eventfd,
    .signal = real_signal,
    .pidfd = real_pidfd,
    .lock_byte = real_lock_byte,
    .locked_byte = real_locked_byte,
    .thread = real_thread,
    .random = real_random,
    .read_line = real_read_line,
    .read_link = real_read_link,
    .read_file = real_read_file,
    .write_file = real_write_file,
    .futex_wait = real_futex_wait,
    .futex_wake = real_futex_wake,
    .get_robust = real_get_robust,
    .set_robust = real_set_robust,
};

const oriel_sys *oriel_sys_now = &oriel_sys_real;

static double seconds_of(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

double oriel_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double oriel_now_coarse(void)
{
    return seconds_of(CLOCK_MONOTONIC_COARSE);
}

void oriel_relax(int yield)
{
    if (yield) {
        sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

/* A mask wider than cpu_set_t counts as the whole machine. */
void oriel_cpus(uint64_t cpus[CPU_WORDS])
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int known = sched_getaffinity(0, sizeof(set), &set) == 0;

    memset(cpus, 0, CPU_WORDS * sizeof *cpus);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (known ? CPU_ISSET(i, &set) : i == 0 || i < online)
            cpus[i / 64] |= 1ull << i % 64;
    }
}

int oriel_cpu_count(void)
{
    uint64_t cpus[CPU_WORDS];
    int count = 0;

    oriel_cpus(cpus);
    for (int w = 0; w < CPU_WORDS; w++)
        count += __builtin_popcountll(cpus[w]);
    return count;
}

int oriel_thread_id(void)
{
    return (int)syscall(SYS_gettid);
}

void oriel_cpu_visit(int nth)
{
    cpu_set_t all, one;

    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && nth-- == 0)
            CPU_SET(cpu, &one);
    }
    if (sched_setaffinity(0, sizeof(one), &one) == 0)
        sched_setaffinity(0, sizeof(all), &all);
}

size_t oriel_cache_bytes(void)
{
    const char *path = "/sys/devices/system/cpu/cpu0/cache/index3/size";
    char text[32];
    char *end;
    unsigned long long size;

    if (real_read_line(path, text, sizeof(text)) != 0)
        return 32 << 20;
    size = strtoull(text, &end, 10);
    size <<= *end == 'M' ? 20 : *end == 'K' ? 10 : 0;
    return size > 0 ? (size_t)size : 32 << 20;
}

static int is_virtual(void)
{
#ifdef __x86_64__
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 31) != 0;
#else
    return 0; /* not known */
#endif
}

int oriel_cores_apart(void)
{
    char all[128];
    char share[128];

    if (is_virtual() || real_read_line("/sys/devices/system/cpu/online", all, sizeof all) != 0 ||
        real_read_line("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", share,
                       sizeof share) != 0)
        return 1;
    return strcmp(all, share) != 0;
}
