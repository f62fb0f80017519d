#include "support/resources.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "support/check.h"

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;

    CHECK(dir != NULL, "%s", path);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* Those of processes apart: watch threads open one when they come to it. */
static int count_fds(int *pidfds_p)
{
    DIR *dir = opendir("/proc/self/fd");
    char target[64];
    int n = 0;

    *pidfds_p = 0;
    CHECK(dir != NULL, "no /proc/self/fd");
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);

        if (len < 0)
            continue;
        target[len] = '\0';
        *pidfds_p += strstr(target, "pidfd") != NULL;
        n += strstr(target, "pidfd") == NULL;
    }
    closedir(dir);
    return n;
}

static int count_maps(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char line[4096];
    int n = 0;

    CHECK(file != NULL, "no /proc/self/maps");
    while (fgets(line, sizeof line, file) != NULL)
        n += strstr(line, "memfd:oriel") != NULL;
    fclose(file);
    return n;
}

static void *nothing(void *arg)
{
    return arg;
}

/* A sanitizer's run-time starts a thread of its own with the program's first. */
static void settle(void)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
}

test_resources resources_now(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    test_resources now;

    pthread_once(&once, settle);
    now.fds = count_fds(&now.pidfds);
    now.threads = count_entries("/proc/self/task");
    now.shared_maps = count_maps();
    return now;
}

void resources_check(test_resources before, const char *where)
{
    double limit = oriel_now() + 5.0;
    test_resources now = resources_now();

    while (now.threads > before.threads && oriel_now() < limit) {
        oriel_relax(1);
        now = resources_now();
    }
    CHECK(now.fds <= before.fds, "%s: %d descriptors, %d before", where, now.fds, before.fds);
    CHECK(now.pidfds <= before.pidfds || now.threads > 1, "%s: %d descriptors of processes", where,
          now.pidfds);
    CHECK(now.threads <= before.threads, "%s: %d threads, %d before", where, now.threads,
          before.threads);
    CHECK(now.shared_maps <= before.shared_maps, "%s: %d shared maps, %d before", where,
          now.shared_maps, before.shared_maps);
}
