/* A multicast object over two GPUs that are not there: what is called in which order, and that
 * whatever fails leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/sys.h"
#include "experimental/multicast.h"
#include "support/ranks.h"

#define BASE 0x500000000ull

static struct {
    int calls, fails; /* the call of this number fails; 0: none does */
    int objects, added, bound, reserved, mapped;
    int can;
} driver;

static cu_result next(void)
{
    return ++driver.calls == driver.fails ? 999 : CU_OK;
}

static cu_result attribute(int *value, int which, cu_device device)
{
    (void)device;
    *value = which == CU_ATTRIBUTE_MULTICAST && driver.can;
    return next();
}

static cu_result granularity(size_t *bytes, const cu_multicast *asked, int option)
{
    (void)option;
    assert_int_equal(asked->devices, 2);
    *bytes = 2 << 20;
    return next();
}

static cu_result create(cu_handle *handle, const cu_multicast *asked)
{
    cu_result result = next();

    assert_int_equal(asked->bytes, 4 << 20);
    assert_int_equal(asked->handle_types, CU_HANDLE_POSIX_FD);
    if (result == CU_OK)
        driver.objects++;
    *handle = 77;
    return result;
}

static cu_result add(cu_handle handle, cu_device device)
{
    assert_int_equal(handle, 77);
    assert_int_equal(device, driver.added);
    driver.added++;
    return next();
}

/* The real one would wait for the other device for ever. */
static cu_result bind_memory(cu_handle handle, size_t at, cu_handle memory, size_t memory_at,
                             size_t bytes, unsigned long long flags)
{
    cu_result result = next();

    assert_int_equal(driver.added, 2);
    assert_int_equal(handle, 77);
    assert_int_equal(memory, 100 + driver.bound);
    assert_int_equal(at + memory_at + flags, 0);
    assert_int_equal(bytes, 4 << 20);
    driver.bound += result == CU_OK;
    return result;
}

static cu_result unbind(cu_handle handle, cu_device device, size_t at, size_t bytes)
{
    (void)device;
    assert_int_equal(handle, 77);
    assert_int_equal(at, 0);
    assert_int_equal(bytes, 4 << 20);
    assert_int_equal(driver.mapped, 0);
    driver.bound--;
    return CU_OK;
}

static cu_result export_fd(void *fd, cu_handle handle, int type, unsigned long long flags)
{
    cu_result result = next();

    (void)type;
    (void)flags;
    assert_int_equal(handle, 77);
    if (result == CU_OK)
        *(int *)fd = oriel_sys_now->eventfd();
    return result;
}

static cu_result reserve(cu_ptr *at, size_t bytes, size_t alignment, cu_ptr wish,
                         unsigned long long flags)
{
    cu_result result = next();

    (void)bytes;
    (void)alignment;
    (void)wish;
    (void)flags;
    driver.reserved += result == CU_OK;
    *at = BASE;
    return result;
}

static cu_result unreserve(cu_ptr at, size_t bytes)
{
    (void)bytes;
    assert_int_equal(at, BASE);
    driver.reserved--;
    return CU_OK;
}

static cu_result map(cu_ptr at, size_t bytes, size_t offset, cu_handle handle,
                     unsigned long long flags)
{
    cu_result result = next();

    (void)bytes;
    (void)flags;
    assert_int_equal(at, BASE);
    assert_int_equal(handle, 77);
    assert_int_equal(offset, 0);
    driver.mapped += result == CU_OK;
    return result;
}

static cu_result unmap(cu_ptr at, size_t bytes)
{
    (void)bytes;
    assert_int_equal(at, BASE);
    driver.mapped--;
    return CU_OK;
}

static cu_result open_to(cu_ptr at, size_t bytes, const cu_access *access, size_t count)
{
    (void)bytes;
    (void)access;
    (void)count;
    assert_int_equal(at, BASE);
    return next();
}

static cu_result release(cu_handle handle)
{
    assert_int_equal(handle, 77);
    assert_int_equal(driver.bound, 0);
    driver.objects--;
    return CU_OK;
}

static cu_result text(cu_result result, const char **text_p)
{
    (void)result;
    *text_p = "made to fail";
    return CU_OK;
}

static const cu_driver fake = {.device_attribute = attribute,
                               .multicast_granularity = granularity,
                               .multicast_create = create,
                               .multicast_add = add,
                               .multicast_bind = bind_memory,
                               .multicast_unbind = unbind,
                               .mem_export = export_fd,
                               .mem_reserve = reserve,
                               .mem_unreserve = unreserve,
                               .mem_map = map,
                               .mem_unmap = unmap,
                               .mem_access = open_to,
                               .mem_release = release,
                               .error_name = text,
                               .error_text = text};

/* A comm of CPUs that is told to have two GPUs. */
static oriel_gpu gpus[2];
static oriel_device_rank ranks[2];
static oriel_devices devices;
static struct oriel_experimental experimental;

static oriel_comm *make(int shared)
{
    oriel_comm *comm = ranks_comm(2, 5.0, NULL);

    memset(&driver, 0, sizeof driver);
    memset(&devices, 0, sizeof devices);
    memset(&experimental, 0, sizeof experimental);
    devices.experimental = &experimental;
    driver.can = 1;
    for (int i = 0; i < 2; i++) {
        gpus[i] = (oriel_gpu){.ordinal = i, .device = i, .arch = 90, .name = "fake"};
        ranks[i] = (oriel_device_rank){
            .gpu = &gpus[i], .heap = {.bytes = 4 << 20, .handle = 100 + (cu_handle)i, .fd = -1}};
        oriel_device_card(&comm->heap, i)->gpu[0] = (char)(shared ? 1 : 1 + i);
        oriel_device_card(&comm->heap, i)->bytes = 4 << 20;
    }
    devices.gpus = gpus;
    devices.num_gpus = devices.num_ranks = 2;
    devices.ranks = ranks;
    comm->devices = &devices;
    oriel_cu = &fake;
    return comm;
}

static void end(oriel_comm *comm)
{
    oriel_multicast_close(comm);
    assert_int_equal(driver.objects | driver.bound | driver.reserved | driver.mapped, 0);
    oriel_cu = NULL;
    comm->devices = NULL;
    assert_int_equal(oriel_comm_destroy(comm), ORIEL_OK);
}

static void test_open(void **state)
{
    oriel_comm *comm = make(0);

    (void)state;
    assert_int_equal(oriel_multicast_open(comm), ORIEL_OK);
    assert_int_equal(oriel_multicast_of(comm)->base, BASE);
    assert_string_equal(oriel_multicast_of(comm)->why, "");
    assert_int_equal(driver.bound, 2);
    assert_int_equal(driver.mapped, 1);
    end(comm);
}

/* Call 1 fails, then 2, until none does. */
static void test_failures(void **state)
{
    int fails = 0;
    int open;

    (void)state;
    do {
        oriel_comm *comm = make(0);

        driver.fails = ++fails;
        assert_int_equal(oriel_multicast_open(comm), ORIEL_OK);
        open = oriel_multicast_of(comm)->base != 0;
        if (!open) {
            assert_non_null(strstr(oriel_multicast_of(comm)->why, "made to fail"));
            assert_int_equal(driver.objects | driver.bound | driver.reserved | driver.mapped, 0);
        }
        end(comm);
    } while (!open);
    assert_true(fails > 10);
}

static void refuses(oriel_comm *comm, const char *words)
{
    assert_int_equal(oriel_multicast_open(comm), ORIEL_OK);
    assert_int_equal(oriel_multicast_of(comm)->base, 0);
    if (strstr(oriel_multicast_of(comm)->why, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", oriel_multicast_of(comm)->why, words);
    end(comm);
}

static void test_reasons(void **state)
{
    oriel_comm *comm = make(1);

    (void)state;
    refuses(comm, "ranks 0 and 1 share a GPU");
    comm = make(0);
    setenv("ORIEL_MULTICAST", "0", 1);
    assert_int_equal(oriel_config_load(), ORIEL_OK);
    refuses(comm, "ORIEL_MULTICAST is 0: set it to 1 on all");
    setenv("ORIEL_MULTICAST", "1", 1);
    comm = make(0);
    driver.can = 0;
    refuses(comm, "device 0 (fake) has no multicast");
    comm = make(0);
    oriel_device_card(&comm->heap, 1)->bytes = 6 << 20;
    refuses(comm, "differ in size");
    comm = make(0);
    comm->devices->ranks[0].heap.handle = 0;
    refuses(comm, "sym_multimem");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_reasons),
    };

    setenv("ORIEL_MULTICAST", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
