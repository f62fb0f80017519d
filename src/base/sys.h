/* Every allocation and system call of the library goes through this one table,
 * so that a test build can count and fail any of them. A call that can fail
 * returns -1 (or NULL) and sets errno. */
#ifndef ORIEL_BASE_SYS_H
#define ORIEL_BASE_SYS_H

#include <ifaddrs.h>
#include <linux/futex.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef struct oriel_sys {
    /* Calls without a comment do what the system's own of that name do. */
    void *(*alloc)(size_t bytes); /* zeroed */
    void (*release)(void *ptr);
    int (*memfd)(const char *name);
    int (*truncate)(int fd, off_t bytes);
    off_t (*file_bytes)(int fd);
    void *(*map)(size_t bytes, int fd); /* shared, read-write, in no core dump; NULL on failure */
    void (*unmap)(void *addr, size_t bytes);
    /* Gives the pages back, of memory mapped above: what is read there next is zero. */
    void (*forget)(void *addr, size_t bytes);
    void (*advise_huge)(void *addr, size_t bytes); /* a wish: may do nothing */
    /* Copies parts of another process's memory, in order: how many bytes. */
    ssize_t (*read_memory)(pid_t pid, const struct iovec *to, const struct iovec *from, int n);
    int (*close)(int fd);
    int (*socket)(int domain, int type, int protocol);
    int (*bind)(int fd, const struct sockaddr *addr, socklen_t len);
    int (*listen)(int fd, int backlog);
    int (*accept)(int fd); /* close-on-exec, non-blocking */
    int (*connect)(int fd, const struct sockaddr *addr, socklen_t len);
    int (*getsockopt)(int fd, int level, int option, void *value, socklen_t *len);
    int (*getsockname)(int fd, struct sockaddr *addr, socklen_t *len);
    /* As getaddrinfo: 0, or a code for gai_strerror. */
    int (*resolve)(const char *host, const char *port, const struct addrinfo *hints,
                   struct addrinfo **list_p);
    /* As getifaddrs. */
    int (*interfaces)(struct ifaddrs **list_p);
    ssize_t (*sendmsg)(int fd, const struct msghdr *msg);
    ssize_t (*recvmsg)(int fd, struct msghdr *msg);
    int (*poll)(struct pollfd *fds, nfds_t n, int timeout_ms); /* a signal returns 0 */
    int (*eventfd)(void);                                      /* non-blocking */
    int (*signal)(int eventfd);                                /* wakes a thread that polls it */
    int (*pidfd)(pid_t pid);                /* readable when the process has ended */
    int (*lock_byte)(int fd, off_t byte);   /* takes the write lock; -1 when held */
    int (*locked_byte)(int fd, off_t byte); /* 1: held by another process, 0: free, -1: error */
    int (*thread)(pthread_t *thread, void *(*fn)(void *), void *arg); /* joinable, no signals */
    int (*random)(void *buf, size_t bytes);
    /* The first line of a small file, or where a link points to: a string. */
    int (*read_line)(const char *path, char *line, size_t len);
    int (*read_link)(const char *path, char *target, size_t len);
    /* A whole file of less than `capacity` bytes: how many. */
    ssize_t (*read_file)(const char *path, void *data, size_t capacity);
    /* Makes or replaces a file at once, and the folder it lies in. */
    int (*write_file)(const char *path, const void *data, size_t bytes);
    /* 0: woken, by a signal too, or the word differs; 1: `seconds` have passed. */
    int (*futex_wait)(_Atomic uint32_t *word, uint32_t expected, double seconds);
    void (*futex_wake)(_Atomic uint32_t *word); /* all waiters */
    /* The calling thread's list of words that the system marks when the thread ends. */
    int (*get_robust)(struct robust_list_head **head_p);
    int (*set_robust)(struct robust_list_head *head);
} oriel_sys;

extern const oriel_sys oriel_sys_real;
/* The table in use; tests swap it before the first call. */
extern const oriel_sys *oriel_sys_now;

/* Monotonic seconds. */
double oriel_now(void);
/* The same as of the last timer tick, a few milliseconds ago: for what happens in
 * every operation, where reading the clock would take longer than the rest. */
double oriel_now_coarse(void);
/* One turn of a wait loop: a pause, or sched_yield when ranks outnumber cores. */
void oriel_relax(int yield);

enum { CPU_WORDS = 16 };
/* The cores this process may run on, as bits. */
void oriel_cpus(uint64_t cpus[CPU_WORDS]);
int oriel_cpu_count(void);
/* Of the calling thread, as the system has it. */
int oriel_thread_id(void);
/* Moves the thread to the nth of them, and lets it go again: there it stays until
 * the scheduler has a reason to move it. */
void oriel_cpu_visit(int nth);
/* Bytes of the largest cache that cores share, or a common size where it is not known. */
size_t oriel_cache_bytes(void);
/* Whether two cores may have no cache in common: not all share the largest one, or the machine
 * is a virtual one, whose cores are moved about under it. */
int oriel_cores_apart(void);

#endif
