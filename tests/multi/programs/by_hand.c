/* A process whose place in the job is given by hand, and what became of it:
 * by_hand id processes store secret job folder. An empty word stands for what the
 * environment says; with a folder, its files are the key-value store. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"

/* ---- a store of files --------------------------------------------------------------- */

static void path_of(const char *folder, const char *key, char *out, size_t len)
{
    snprintf(out, len, "%s/%s", folder, key);
    for (char *at = out + strlen(folder) + 1; *at != '\0'; at++) {
        if (*at == '/')
            *at = '.';
    }
}

/* Written aside and then named, if the name is free: nobody reads half a value, and the first
 * stays. */
static oriel_status file_set(void *ctx, const char *key, const void *value, size_t len)
{
    char path[512];
    char aside[600];
    oriel_status st;
    int fd;

    path_of(ctx, key, path, sizeof path);
    snprintf(aside, sizeof aside, "%s.%d", path, (int)getpid());
    fd = open(aside, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0, "%s: %s", aside, strerror(errno));
    CHECK(write(fd, value, len) == (ssize_t)len, "%s: %s", aside, strerror(errno));
    close(fd);
    st = link(aside, path) == 0 ? ORIEL_OK : ORIEL_ERR_MISMATCH;
    CHECK(st == ORIEL_OK || errno == EEXIST, "%s: %s", path, strerror(errno));
    unlink(aside);
    return st;
}

static oriel_status file_get(void *ctx, const char *key, double timeout_s, void *value,
                             size_t capacity, size_t *len_p)
{
    double limit = oriel_now() + timeout_s;
    char path[512];
    ssize_t n;
    int fd;

    path_of(ctx, key, path, sizeof path);
    while ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
        if (oriel_now() > limit)
            return ORIEL_ERR_TIMEOUT;
        poll(NULL, 0, 1);
    }
    n = read(fd, value, capacity);
    close(fd);
    CHECK(n >= 0, "%s: %s", path, strerror(errno));
    *len_p = (size_t)n;
    return ORIEL_OK;
}

/* ---- the process ----------------------------------------------------------------------- */

static const char *word(int argc, char **argv, int index)
{
    return index < argc && argv[index][0] != '\0' ? argv[index] : NULL;
}

int main(int argc, char **argv)
{
    oriel_comm_params params = ORIEL_COMM_PARAMS_INIT;
    oriel_store files = ORIEL_STORE_INIT;
    test_resources before = resources_now();
    oriel_comm *comm = NULL;
    oriel_status st;
    int x = 1;

    params.process_id = word(argc, argv, 1) ? process_argument(argc, argv, 1, -1) : -1;
    params.num_processes = word(argc, argv, 2) ? process_argument(argc, argv, 2, 0) : 0;
    params.store = word(argc, argv, 3);
    params.secret = word(argc, argv, 4);
    params.job = word(argc, argv, 5);
    params.timeout_s = 30.0;
    if (word(argc, argv, 6)) {
        files.ctx = argv[6];
        files.set = file_set;
        files.get = file_get;
        params.kv = &files;
    }
    st = oriel_comm_create(&params, &comm);
    if (st == ORIEL_OK)
        st = oriel_all_reduce(oriel_comm_world(comm), oriel_comm_first_rank(comm), &x, &x, 1,
                              ORIEL_S32, ORIEL_SUM);
    CHECK(st != ORIEL_OK || x == oriel_comm_size(comm), "the sum is %d", x);
    printf("%s %s\n", oriel_status_name(st), st == ORIEL_OK ? "" : oriel_last_error());
    CHECK_OK(oriel_comm_destroy(comm));
    resources_check(before, "after all");
    return 0;
}
