#include "support/failing_sys.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static _Atomic long countdown; /* calls until one fails; 0: none will */
static _Atomic int error_to_set;
static const char *_Atomic victim;
static const char *_Atomic only; /* NULL: any call may fail */
static _Atomic long held;
static _Atomic int sparing;         /* threads started now are spared */
static _Thread_local int is_spared; /* calls of this thread never fail */

/* Whether the call `name` is the one to fail. */
static int fails(const char *name)
{
    const char *wanted = atomic_load(&only);
    long left = atomic_load(&countdown);

    if (wanted != NULL && strcmp(wanted, name) != 0)
        return 0;
    do {
        if (left == 0 || is_spared)
            return 0;
    } while (!atomic_compare_exchange_weak(&countdown, &left, left - 1));
    if (left != 1)
        return 0;
    atomic_store(&victim, name);
    errno = atomic_load(&error_to_set);
    return 1;
}

static int hold(int fd)
{
    if (fd >= 0)
        atomic_fetch_add(&held, 1);
    return fd;
}

static void *counted_alloc(size_t bytes)
{
    void *ptr = fails("alloc") ? NULL : oriel_sys_real.alloc(bytes);

    if (ptr != NULL)
        atomic_fetch_add(&held, 1);
    return ptr;
}

static void counted_release(void *ptr)
{
    if (ptr != NULL)
        atomic_fetch_sub(&held, 1);
    oriel_sys_real.release(ptr);
}

static int counted_memfd(const char *name)
{
    return fails("memfd") ? -1 : hold(oriel_sys_real.memfd(name));
}

static int counted_truncate(int fd, off_t bytes)
{
    return fails("truncate") ? -1 : oriel_sys_real.truncate(fd, bytes);
}

static off_t counted_file_bytes(int fd)
{
    return fails("file_bytes") ? -1 : oriel_sys_real.file_bytes(fd);
}

static void *counted_map(size_t bytes, int fd)
{
    void *addr = fails("map") ? NULL : oriel_sys_real.map(bytes, fd);

    if (addr != NULL)
        atomic_fetch_add(&held, 1);
    return addr;
}

static void counted_unmap(void *addr, size_t bytes)
{
    atomic_fetch_sub(&held, 1);
    oriel_sys_real.unmap(addr, bytes);
}

/* A watch thread opens one when it comes to it, also that of another comm: resources.c
 * counts them. */
static _Atomic char is_pidfd[1024];

static int counted_pidfd(pid_t pid)
{
    int fd = fails("pidfd") ? -1 : oriel_sys_real.pidfd(pid);

    if (fd >= 0)
        atomic_store(&is_pidfd[fd % 1024], 1);
    return fd;
}

static int counted_close(int fd)
{
    if (fd < 0 || !atomic_exchange(&is_pidfd[fd % 1024], 0))
        atomic_fetch_sub(&held, 1);
    return oriel_sys_real.close(fd);
}

static int counted_socket(int domain, int type, int protocol)
{
    return fails("socket") ? -1 : hold(oriel_sys_real.socket(domain, type, protocol));
}

static int counted_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    return fails("bind") ? -1 : oriel_sys_real.bind(fd, addr, len);
}

static int counted_listen(int fd, int backlog)
{
    return fails("listen") ? -1 : oriel_sys_real.listen(fd, backlog);
}

static int counted_accept(int fd)
{
    return fails("accept") ? -1 : hold(oriel_sys_real.accept(fd));
}

static int counted_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    return fails("connect") ? -1 : oriel_sys_real.connect(fd, addr, len);
}

static int counted_getsockopt(int fd, int level, int option, void *value, socklen_t *len)
{
    return fails("getsockopt") ? -1 : oriel_sys_real.getsockopt(fd, level, option, value, len);
}

static int counted_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
    return fails("getsockname") ? -1 : oriel_sys_real.getsockname(fd, addr, len);
}

static int counted_resolve(const char *host, const char *port, const struct addrinfo *hints,
                           struct addrinfo **list_p)
{
    return fails("resolve") ? EAI_MEMORY : oriel_sys_real.resolve(host, port, hints, list_p);
}

static int counted_interfaces(struct ifaddrs **list_p)
{
    return fails("interfaces") ? -1 : oriel_sys_real.interfaces(list_p);
}

static ssize_t counted_sendmsg(int fd, const struct msghdr *msg)
{
    return fails("sendmsg") ? -1 : oriel_sys_real.sendmsg(fd, msg);
}

/* A descriptor that comes with the message is one more to close. */
static ssize_t counted_recvmsg(int fd, struct msghdr *msg)
{
    ssize_t n = fails("recvmsg") ? -1 : oriel_sys_real.recvmsg(fd, msg);

    if (n > 0 && msg->msg_control != NULL && CMSG_FIRSTHDR(msg) != NULL)
        atomic_fetch_add(&held, 1);
    return n;
}

static int counted_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    return fails("poll") ? -1 : oriel_sys_real.poll(fds, n, timeout_ms);
}

static int counted_eventfd(void)
{
    return fails("eventfd") ? -1 : hold(oriel_sys_real.eventfd());
}

static int counted_signal(int eventfd)
{
    return fails("signal") ? -1 : oriel_sys_real.signal(eventfd);
}

static int counted_lock_byte(int fd, off_t byte)
{
    return fails("lock_byte") ? -1 : oriel_sys_real.lock_byte(fd, byte);
}

static int counted_locked_byte(int fd, off_t byte)
{
    return fails("locked_byte") ? -1 : oriel_sys_real.locked_byte(fd, byte);
}

struct start {
    void *(*fn)(void *);
    void *arg;
    int spared;
};

static void *start_thread(void *arg)
{
    struct start start = *(struct start *)arg;

    free(arg);
    is_spared = start.spared;
    return start.fn(start.arg);
}

static int counted_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    struct start *start;

    if (fails("thread"))
        return -1;
    start = malloc(sizeof *start);
    if (start == NULL)
        return -1;
    *start = (struct start){fn, arg, atomic_load(&sparing)};
    if (oriel_sys_real.thread(thread, start_thread, start) == 0)
        return 0;
    free(start);
    return -1;
}

static int counted_random(void *buf, size_t bytes)
{
    return fails("random") ? -1 : oriel_sys_real.random(buf, bytes);
}

static int counted_read_line(const char *path, char *line, size_t len)
{
    return fails("read_line") ? -1 : oriel_sys_real.read_line(path, line, len);
}

static int counted_read_link(const char *path, char *target, size_t len)
{
    return fails("read_link") ? -1 : oriel_sys_real.read_link(path, target, len);
}

static ssize_t counted_read_memory(pid_t pid, const struct iovec *to, const struct iovec *from,
                                   int n)
{
    return fails("read_memory") ? -1 : oriel_sys_real.read_memory(pid, to, from, n);
}

static ssize_t counted_read_file(const char *path, void *data, size_t capacity)
{
    return fails("read_file") ? -1 : oriel_sys_real.read_file(path, data, capacity);
}

static int counted_write_file(const char *path, const void *data, size_t bytes)
{
    return fails("write_file") ? -1 : oriel_sys_real.write_file(path, data, bytes);
}

/* One that fails has not slept. */
static int counted_futex_wait(_Atomic uint32_t *word, uint32_t expected, double seconds)
{
    return fails("futex_wait") ? 0 : oriel_sys_real.futex_wait(word, expected, seconds);
}

static int counted_get_robust(struct robust_list_head **head_p)
{
    return fails("get_robust") ? -1 : oriel_sys_real.get_robust(head_p);
}

static int counted_set_robust(struct robust_list_head *head)
{
    return fails("set_robust") ? -1 : oriel_sys_real.set_robust(head);
}

static oriel_sys counted;

void failing_sys_install(void)
{
    counted = oriel_sys_real;
    counted.alloc = counted_alloc;
    counted.release = counted_release;
    counted.memfd = counted_memfd;
    counted.truncate = counted_truncate;
    counted.file_bytes = counted_file_bytes;
    counted.map = counted_map;
    counted.unmap = counted_unmap;
    counted.close = counted_close;
    counted.socket = counted_socket;
    counted.bind = counted_bind;
    counted.listen = counted_listen;
    counted.accept = counted_accept;
    counted.connect = counted_connect;
    counted.getsockopt = counted_getsockopt;
    counted.getsockname = counted_getsockname;
    counted.resolve = counted_resolve;
    counted.interfaces = counted_interfaces;
    counted.sendmsg = counted_sendmsg;
    counted.recvmsg = counted_recvmsg;
    counted.poll = counted_poll;
    counted.eventfd = counted_eventfd;
    counted.pidfd = counted_pidfd;
    counted.signal = counted_signal;
    counted.lock_byte = counted_lock_byte;
    counted.locked_byte = counted_locked_byte;
    counted.thread = counted_thread;
    counted.random = counted_random;
    counted.read_line = counted_read_line;
    counted.read_link = counted_read_link;
    counted.read_memory = counted_read_memory;
    counted.read_file = counted_read_file;
    counted.write_file = counted_write_file;
    counted.futex_wait = counted_futex_wait;
    counted.get_robust = counted_get_robust;
    counted.set_robust = counted_set_robust;
    failing_sys_arm(0, 0);
    atomic_store(&held, 0);
    oriel_sys_now = &counted;
}

void failing_sys_remove(void)
{
    oriel_sys_now = &oriel_sys_real;
}

void failing_sys_arm(long n, int error)
{
    atomic_store(&victim, NULL);
    atomic_store(&error_to_set, error);
    atomic_store(&countdown, n);
}

void failing_sys_only(const char *name)
{
    atomic_store(&only, name);
}

void failing_sys_disarm(void)
{
    atomic_store(&countdown, 0);
}

void failing_sys_spare(int on)
{
    atomic_store(&sparing, on);
}

const char *failing_sys_victim(void)
{
    return atomic_load(&victim);
}

long failing_sys_held(void)
{
    return atomic_load(&held);
}
