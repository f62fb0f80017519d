/* The fabrics of device memory: which one is chosen, and that no slot of a table is empty. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "core/nccl/comm.h"
#include "core/start/fabrics.h"

static const oriel_device_fabric *chosen(const char *asked, int machines)
{
    const oriel_device_fabric *fabric = NULL;

    setenv("ORIEL_FABRIC", asked, 1);
    assert_int_equal(oriel_config_load(), ORIEL_OK);
    (void)oriel_device_fabric_choose(machines, &fabric);
    return fabric;
}

static void test_choice(void **state)
{
    (void)state;
    assert_ptr_equal(chosen("auto", 1), &oriel_device_cuda);
    assert_ptr_equal(chosen("cuda", 1), &oriel_device_cuda);
    assert_ptr_equal(chosen("nccl", 1), &oriel_device_nccl);
    assert_ptr_equal(chosen("auto", 2), &oriel_device_span);
    assert_ptr_equal(chosen("cuda", 3), &oriel_device_span);
    assert_null(chosen("nccl", 2));
    assert_non_null(strstr(oriel_last_error(), "ORIEL_FABRIC=nccl in a world on 2 machines"));
}

/* The slots are pointers, behind the name and `spans`. */
static void test_slots(void **state)
{
    const size_t first = offsetof(oriel_device_fabric, invite);

    (void)state;
    for (const oriel_device_fabric *const *f = oriel_device_fabrics; *f != NULL; f++) {
        assert_in_range(strlen((*f)->name), 1, DEVICE_FABRIC_NAME - 1);
        for (size_t at = first; at < sizeof **f; at += sizeof(void *)) {
            void *slot;

            memcpy(&slot, (const char *)*f + at, sizeof slot);
            assert_non_null(slot);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice), cmocka_unit_test(test_slots)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
