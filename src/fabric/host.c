/* The host fabric: memory shared through memfd, file descriptors passed by a port. Nothing has a
 * name in a file system, so nothing is left behind after kill -9, and no other user can open it. */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "fabric/port.h"

static oriel_status host_probe(void)
{
    int fd = oriel_sys_now->memfd("oriel-probe");

    if (fd < 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "host fabric: memfd_create failed: %s",
                          strerror(errno));
    oriel_sys_now->close(fd);
    return ORIEL_OK;
}

static oriel_status segment_map(int fd, size_t bytes, oriel_segment *segment_p)
{
    void *base = oriel_sys_now->map(bytes, fd);

    if (base == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "host fabric: mapping %zu bytes failed: %s", bytes,
                          strerror(errno));
    *segment_p = (oriel_segment){.base = base, .bytes = bytes, .fd = fd};
    return ORIEL_OK;
}

static oriel_status host_segment_create(size_t bytes, oriel_segment *segment_p)
{
    oriel_status st;
    int fd = oriel_sys_now->memfd("oriel");

    if (fd < 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "host fabric: memfd_create failed: %s",
                          strerror(errno));
    if (oriel_sys_now->truncate(fd, (off_t)bytes) != 0) {
        st = oriel_fail(ORIEL_ERR_SYSTEM, "host fabric: sizing a segment to %zu bytes failed: %s",
                        bytes, strerror(errno));
        goto err_close;
    }
    st = segment_map(fd, bytes, segment_p);
    if (st != ORIEL_OK)
        goto err_close;
    return ORIEL_OK;

err_close:
    oriel_sys_now->close(fd);
    return st;
}

static void host_segment_close(oriel_segment *segment)
{
    if (segment->base == NULL)
        return;
    oriel_sys_now->unmap(segment->base, segment->bytes);
    oriel_sys_now->close(segment->fd);
    memset(segment, 0, sizeof *segment);
}

/* Pages past the end of a file are mapped without a word, and kill a process that touches them. */
static oriel_status check_size(int fd, size_t bytes)
{
    off_t has = oriel_sys_now->file_bytes(fd);

    if (has < 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "host fabric: the size of a segment is unknown: %s",
                          strerror(errno));
    if ((size_t)has < bytes)
        return oriel_fail(ORIEL_ERR_MISMATCH,
                          "host fabric: the segment received has %zu bytes instead of %zu",
                          (size_t)has, bytes);
    return ORIEL_OK;
}

static oriel_status host_segment_fetch(const oriel_ticket *ticket, uint64_t id, size_t bytes,
                                       double timeout_s, oriel_segment *segment_p)
{
    int fd = -1;
    oriel_status st = oriel_port_fetch(ticket, id, timeout_s, &fd);

    if (st != ORIEL_OK)
        return st;
    st = check_size(fd, bytes);
    if (st == ORIEL_OK)
        st = segment_map(fd, bytes, segment_p);
    if (st != ORIEL_OK)
        oriel_sys_now->close(fd);
    return st;
}

static oriel_status host_member_join(const oriel_segment *segment, int member)
{
    if (oriel_sys_now->lock_byte(segment->fd, member) != 0)
        return oriel_fail(ORIEL_ERR_SYSTEM, "host fabric: life lock %d is held by someone else: %s",
                          member, strerror(errno));
    return ORIEL_OK;
}

static int host_member_alive(const oriel_segment *segment, int member)
{
    /* An error says nothing about the peer: count it as alive. */
    return oriel_sys_now->locked_byte(segment->fd, member) != 0;
}

static oriel_status host_memory_read(int pid, void *dst, const void *src, size_t bytes,
                                     const void *token, uint64_t *token_p)
{
    size_t more = token != NULL ? sizeof *token_p : 0;

    for (size_t done = 0;;) {
        size_t left = bytes - done;
        struct iovec to[] = {{(char *)dst + done, left}, {token_p, sizeof *token_p}};
        struct iovec from[] = {{(char *)(uintptr_t)src + done, left},
                               {(void *)(uintptr_t)token, sizeof *token_p}};
        ssize_t got = oriel_sys_now->read_memory(pid, to, from, more > 0 ? 2 : 1);

        if (got == (ssize_t)(left + more))
            return ORIEL_OK;
        if (got <= 0 || got > (ssize_t)left)
            return oriel_fail(got < 0 && errno == ESRCH ? ORIEL_ERR_PEER : ORIEL_ERR_SYSTEM,
                              "host fabric: reading %zu bytes of process %d failed: %s", bytes, pid,
                              got < 0 ? strerror(errno) : "not all of it is there");
        done += (size_t)got;
    }
}

static oriel_status host_operation(void)
{
    return ORIEL_OK;
}

const oriel_fabric oriel_fabric_host = {
    .name = "host",
    .note = "",
    .probe = host_probe,
    .segment_create = host_segment_create,
    .segment_close = host_segment_close,
    .port_create = oriel_port_create,
    .port_close = oriel_port_close,
    .port_serve = oriel_port_serve,
    .segment_fetch = host_segment_fetch,
    .member_join = host_member_join,
    .member_alive = host_member_alive,
    .memory_read = host_memory_read,
    .operation = host_operation,
};
