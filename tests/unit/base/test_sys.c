/* labels: tsan valgrind */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"

static void assert_close_on_exec(int fd)
{
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void test_alloc_is_zeroed(void **state)
{
    static const char zeros[1000];
    void *empty = oriel_sys_now->alloc(0);
    void *ptr = oriel_sys_now->alloc(sizeof(zeros));

    (void)state;
    assert_non_null(empty);
    assert_memory_equal(ptr, zeros, sizeof(zeros));
    oriel_sys_now->release(ptr);
    oriel_sys_now->release(empty);
    oriel_sys_now->release(NULL);
}

static void test_two_maps_share_memory(void **state)
{
    int fd = oriel_sys_now->memfd("test");
    char *one, *two;

    (void)state;
    assert_close_on_exec(fd);
    assert_int_equal(oriel_sys_now->truncate(fd, 4096), 0);
    assert_int_equal(oriel_sys_now->file_bytes(fd), 4096);
    one = oriel_sys_now->map(4096, fd);
    two = oriel_sys_now->map(4096, fd);
    assert_non_null(one);
    assert_non_null(two);
    one[7] = 42;
    assert_int_equal(two[7], 42);
    oriel_sys_now->unmap(one, 4096);
    oriel_sys_now->unmap(two, 4096);
    assert_int_equal(oriel_sys_now->close(fd), 0);
    assert_null(oriel_sys_now->map(4096, fd));
    assert_int_equal(oriel_sys_now->file_bytes(fd), -1);
}

/* A child takes the lock, says so through the pipe, and dies when told to. */
/* Whether the system has a flag ("dd") for the mapping that begins at `addr`. */
static int has_flag(const void *addr, const char *flag)
{
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[512];
    int here = 0;
    int found = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long long begin;
        unsigned long long end;

        if (sscanf(line, "%llx-%llx ", &begin, &end) == 2)
            here = begin == (uintptr_t)addr;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, flag) != NULL;
    }
    fclose(maps);
    return found;
}

/* A core dump of a segment of which little is touched would take memory and disk for all of it. */
static void test_maps_are_not_dumped(void **state)
{
    enum { BYTES = 1 << 20 };
    int fd = oriel_sys_now->memfd("test");
    char *addr;

    (void)state;
    assert_int_equal(oriel_sys_now->truncate(fd, BYTES), 0);
    addr = oriel_sys_now->map(BYTES, fd);
    assert_non_null(addr);
    assert_true(has_flag(addr, " sh ")); /* shared: the line is the right one */
    assert_true(has_flag(addr, " dd "));
    oriel_sys_now->unmap(addr, BYTES);
    assert_int_equal(oriel_sys_now->close(fd), 0);
}

static void test_byte_lock_dies_with_its_process(void **state)
{
    int fd = oriel_sys_now->memfd("lock");
    int up[2], down[2];
    char byte;
    pid_t child;

    (void)state;
    assert_int_equal(oriel_sys_now->truncate(fd, 4096), 0);
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    assert_int_equal(oriel_sys_now->lock_byte(fd, 1), 0);
    child = fork();
    if (child == 0) {
        close(down[1]); /* so that the end of the parent ends the wait below */
        byte = (char)(oriel_sys_now->lock_byte(fd, 5) == 0);
        byte = (char)(byte && oriel_sys_now->lock_byte(fd, 1) == -1); /* the parent's own */
        (void)!write(up[1], &byte, 1);
        (void)!read(down[0], &byte, 1);
        _exit(0);
    }
    assert_int_equal(read(up[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    assert_int_equal(oriel_sys_now->locked_byte(fd, 5), 1);
    assert_int_equal(oriel_sys_now->locked_byte(fd, 6), 0);
    assert_int_equal(oriel_sys_now->lock_byte(fd, 5), -1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(oriel_sys_now->locked_byte(fd, 5), 0);
    assert_int_equal(oriel_sys_now->lock_byte(fd, 5), 0);
    oriel_sys_now->close(fd);
    assert_int_equal(oriel_sys_now->locked_byte(fd, 5), -1);
    close(up[0]), close(up[1]), close(down[0]), close(down[1]);
}

static void test_sockets_carry_messages(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX}; /* autobind: a free abstract name */
    socklen_t len = sizeof(addr);
    int server = oriel_sys_now->socket(AF_UNIX, SOCK_STREAM, 0);
    int client = oriel_sys_now->socket(AF_UNIX, SOCK_STREAM, 0);
    char buf[8] = "hello";
    struct iovec part = {.iov_base = buf, .iov_len = sizeof(buf)};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
    struct pollfd wait;
    int peer;

    (void)state;
    assert_close_on_exec(server);
    assert_int_equal(oriel_sys_now->bind(server, (struct sockaddr *)&addr, sizeof(addr.sun_family)),
                     0);
    assert_int_equal(oriel_sys_now->listen(server, 4), 0);
    assert_int_equal(getsockname(server, (struct sockaddr *)&addr, &len), 0);
    assert_int_equal(oriel_sys_now->connect(client, (struct sockaddr *)&addr, len), 0);
    peer = oriel_sys_now->accept(server);
    assert_close_on_exec(peer);
    assert_true(fcntl(peer, F_GETFL) & O_NONBLOCK);

    wait = (struct pollfd){.fd = peer, .events = POLLIN};
    assert_int_equal(oriel_sys_now->poll(&wait, 1, 0), 0);
    assert_int_equal(oriel_sys_now->sendmsg(client, &msg), sizeof(buf));
    assert_int_equal(oriel_sys_now->poll(&wait, 1, 10000), 1);
    memset(buf, 0, sizeof(buf));
    assert_int_equal(oriel_sys_now->recvmsg(peer, &msg), sizeof(buf));
    assert_string_equal(buf, "hello");

    oriel_sys_now->close(peer);
    assert_int_equal(oriel_sys_now->sendmsg(client, &msg), -1); /* and no SIGPIPE */
    oriel_sys_now->close(client);
    oriel_sys_now->close(server);
}

static void *signals_blocked(void *arg)
{
    sigset_t set;

    pthread_sigmask(SIG_SETMASK, NULL, &set);
    *(int *)arg = sigismember(&set, SIGINT) && sigismember(&set, SIGTERM);
    return NULL;
}

static void test_thread_takes_no_signals(void **state)
{
    pthread_t thread;
    sigset_t set;
    int blocked = 0;

    (void)state;
    assert_int_equal(oriel_sys_now->thread(&thread, signals_blocked, &blocked), 0);
    pthread_join(thread, NULL);
    assert_true(blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    assert_false(sigismember(&set, SIGINT));
}

/* Whether the main thread sleeps on `word`, as the kernel sees it; where the
 * kernel does not say, yes. */
static int main_thread_waits_for(const void *word)
{
    char path[64], line[256] = "";
    unsigned long number, address = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)getpid());
    file = fopen(path, "r");
    if (file == NULL || fgets(line, sizeof(line), file) == NULL)
        line[0] = '\0';
    if (file != NULL)
        fclose(file);
    return line[0] == '\0' ||
           (sscanf(line, "%lu %lx", &number, &address) == 2 && address == (uintptr_t)word);
}

/* Waits until there is somebody to wake. */
static void *wake(void *arg)
{
    _Atomic uint32_t *word = arg;
    double deadline = oriel_now() + 10;

    while (!main_thread_waits_for(word) && oriel_now() < deadline)
        oriel_relax(1);
    atomic_store(word, 1);
    oriel_sys_now->futex_wake(word);
    return NULL;
}

static void test_futex(void **state)
{
    _Atomic uint32_t word = 0;
    pthread_t thread;
    double start = oriel_now();

    (void)state;
    assert_int_equal(oriel_sys_now->futex_wait(&word, 9, 100), 0); /* the word differs */
    assert_int_equal(oriel_sys_now->futex_wait(&word, 0, 0.01), 1);
    assert_int_equal(oriel_sys_now->futex_wait(&word, 0, -1), 1);
    assert_true(oriel_now() - start >= 0.01);
    assert_int_equal(oriel_sys_now->thread(&thread, wake, &word), 0);
    while (atomic_load(&word) == 0)
        assert_int_equal(oriel_sys_now->futex_wait(&word, 0, 60), 0);
    pthread_join(thread, NULL);
}

static void test_random_differs(void **state)
{
    unsigned char a[64] = {0}, b[64] = {0};

    (void)state;
    assert_int_equal(oriel_sys_now->random(a, sizeof(a)), 0);
    assert_int_equal(oriel_sys_now->random(b, sizeof(b)), 0);
    assert_memory_not_equal(a, b, sizeof(a));
}

static void test_signal_wakes(void **state)
{
    struct pollfd wait = {.events = POLLIN};

    (void)state;
    wait.fd = oriel_sys_now->eventfd();
    assert_int_equal(oriel_sys_now->poll(&wait, 1, 0), 0);
    assert_int_equal(oriel_sys_now->signal(wait.fd), 0);
    assert_int_equal(oriel_sys_now->poll(&wait, 1, 10000), 1);
    oriel_sys_now->close(wait.fd);
    assert_int_equal(oriel_sys_now->signal(wait.fd), -1);
}

static void test_pidfd_tells_of_an_end(void **state)
{
    struct pollfd wait = {.events = POLLIN};
    pid_t child = fork();

    (void)state;
    if (child == 0)
        pause();
    wait.fd = oriel_sys_now->pidfd(child);
    if (wait.fd < 0 && errno == ENOSYS) { /* an old kernel, or valgrind: watches look */
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        return;
    }
    assert_true(wait.fd >= 0);
    assert_close_on_exec(wait.fd);
    assert_int_equal(oriel_sys_now->poll(&wait, 1, 0), 0);
    kill(child, SIGKILL);
    assert_int_equal(oriel_sys_now->poll(&wait, 1, 10000), 1);
    waitpid(child, NULL, 0);
    oriel_sys_now->close(wait.fd);
    assert_int_equal(oriel_sys_now->pidfd(-1), -1);
}

static void test_visiting_a_core_binds_to_none(void **state)
{
    int cores = oriel_cpu_count();

    (void)state;
    oriel_cpu_visit(cores - 1);
    assert_int_equal(oriel_cpu_count(), cores);
    oriel_cpu_visit(cores); /* there is none */
    assert_int_equal(oriel_cpu_count(), cores);
}

static void test_small_files(void **state)
{
    char line[16];
    char tiny[3];

    (void)state;
    assert_int_equal(oriel_sys_now->read_line("/proc/sys/kernel/ostype", line, sizeof(line)), 0);
    assert_string_equal(line, "Linux");
    assert_int_equal(oriel_sys_now->read_line("/proc/sys/kernel/ostype", tiny, sizeof(tiny)), 0);
    assert_string_equal(tiny, "Li");
    assert_int_equal(oriel_sys_now->read_line("/nowhere", line, sizeof(line)), -1);
    assert_int_equal(oriel_sys_now->read_link("/proc/self/ns/net", line, sizeof(line)), 0);
    assert_memory_equal(line, "net:[", 5);
    assert_int_equal(oriel_sys_now->read_link("/proc/self/comm", line, sizeof(line)), -1);
}

static void test_small_things(void **state)
{
    uint64_t one = 1;
    int fd = oriel_sys_now->eventfd();

    (void)state;
    assert_close_on_exec(fd);
    assert_int_equal(read(fd, &one, sizeof(one)), -1); /* non-blocking */
    oriel_sys_now->close(fd);
    assert_true(oriel_cpu_count() >= 1);
    oriel_relax(0);
    oriel_relax(1);
    assert_ptr_equal(oriel_sys_now, &oriel_sys_real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_is_zeroed),
        cmocka_unit_test(test_two_maps_share_memory),
        cmocka_unit_test(test_maps_are_not_dumped),
        cmocka_unit_test(test_byte_lock_dies_with_its_process),
        cmocka_unit_test(test_sockets_carry_messages),
        cmocka_unit_test(test_thread_takes_no_signals),
        cmocka_unit_test(test_futex),
        cmocka_unit_test(test_random_differs),
        cmocka_unit_test(test_signal_wakes),
        cmocka_unit_test(test_pidfd_tells_of_an_end),
        cmocka_unit_test(test_visiting_a_core_binds_to_none),
        cmocka_unit_test(test_small_files),
        cmocka_unit_test(test_small_things),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
