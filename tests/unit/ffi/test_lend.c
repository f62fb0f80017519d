/* XLA's communicators in hand-made call frames, with an extension of ours in XLA's place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/config.h"
#include "core/device/shown.h"
#include "core/world/comm.h"
#include "ffi/ffi.h"
#include "ffi/lend.h"
#include "support/check.h"
#include "support/ranks.h"

enum { RANKS = 4, GROUP = 2 };

/* ---- XLA ---------------------------------------------------------------------------------------
 */

static const xla_collectives *extension; /* of the frames */
static xla_communicator_args asked;      /* last, in either stage */
static int requests, takes, errors;
static int refuses;

static xla_error *answer(void)
{
    errors += refuses;
    return refuses ? (xla_error *)&errors : NULL;
}

static xla_error *request(const xla_collectives *self, xla_communicator_args *args)
{
    assert_ptr_equal(self, extension);
    assert_int_equal(args->struct_size, offsetof(xla_communicator_args, communicator));
    memcpy(&asked, args, args->struct_size);
    requests++;
    return answer();
}

static xla_error *get(const xla_collectives *self, xla_communicator_args *args)
{
    assert_ptr_equal(self, extension);
    assert_int_equal(args->struct_size, sizeof *args);
    asked = *args;
    args->communicator = &asked;
    takes++;
    return answer();
}

static xla_error *find_extension(xla_find_args *args)
{
    assert_int_equal(args->type, 129);
    args->found = (const xla_call_extension *)(const void *)extension;
    return NULL;
}

static void destroy(xla_destroy_args *args)
{
    assert_ptr_equal(args->error, &errors);
    errors--;
}

static xla_collectives collectives(size_t bytes, int major, int minor)
{
    return (xla_collectives){
        .base = {.struct_size = bytes, .type = 129, .major = major, .minor = minor},
        .request = request,
        .get = get};
}

static const xla_api with = {
    .struct_size = sizeof with, .error_destroy = destroy, .find_extension = find_extension};
/* As jaxlib 0.10 has it. */
static const xla_api without = {.struct_size = offsetof(xla_api, find_extension),
                                .error_destroy = destroy,
                                .find_extension = find_extension};

/* ---- a call ------------------------------------------------------------------------------------
 */

static oriel_comm *comm;
static xla_collectives good;

static oriel_status make_site(const int64_t *places, int num_places, oriel_site **site_p)
{
    static const int64_t ranks[RANKS] = {0, 1, 2, 3};
    site_attrs attrs = {.kind = ORIEL_KIND_ALL_REDUCE,
                        .name = 1,
                        .world = RANKS,
                        .group_size = GROUP,
                        .num_ranks = RANKS,
                        .ranks = ranks,
                        .num_places = num_places,
                        .places = places};

    return oriel_site_create(&attrs, site_p);
}

static oriel_site *site_of(const int64_t *places)
{
    oriel_site *site = NULL;

    CHECK_OK(make_site(places, places != NULL ? RANKS : 0, &site));
    return site;
}

static const int64_t places[RANKS] = {2, 0, 3, 1};

static int set_up(void **state)
{
    (void)state;
    comm = ranks_comm(RANKS, 5.0, NULL);
    for (int r = 0; r < RANKS; r++)
        oriel_device_card(&comm->heap, r)->gpu[0] = (char)(r + 1);
    requests = takes = errors = refuses = 0;
    good = collectives(sizeof good, 0, 1);
    extension = &good;
    unsetenv("ORIEL_NCCL_COMM");
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
    CHECK_OK(oriel_config_load());
    oriel_ffi_runtime("jaxlib 0.10.2");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(errors, 0); /* all were destroyed */
    CHECK_OK(oriel_comm_destroy(comm));
    return 0;
}

/* In mode `mode`: what comes of a request, and then what is lent. */
static oriel_status try_both(const xla_api *api, oriel_site *site, const char *mode, void **lent_p)
{
    const xla_frame frame = {.struct_size = sizeof frame, .api = api};
    static uint64_t worlds; /* each try is in one of its own */
    oriel_calls calls = {0};
    nccl_comm lent = (nccl_comm)(void *)&frame;
    site_member *member;
    oriel_status st;

    setenv("ORIEL_NCCL_COMM", mode, 1);
    CHECK_OK(oriel_config_load());
    CHECK_OK(oriel_site_add_member(site, 0, ++worlds, &calls, oriel_comm_world(comm), 0, &member));
    CHECK_OK(oriel_lend_take(&frame, site, member, &lent));
    assert_null(lent); /* not before it was asked for */
    st = oriel_lend_decide(&frame, member);
    assert_int_equal(oriel_lend_is_decided(member), st == ORIEL_OK);
    if (st == ORIEL_OK)
        st = oriel_lend_request(&frame, site, member);
    if (st == ORIEL_OK)
        st = oriel_lend_take(&frame, site, member, &lent);
    *lent_p = lent;
    oriel_calls_free(&calls);
    return st;
}

static void test_a_call_gets_the_communicator_of_its_groups(void **state)
{
    oriel_site *site = site_of(places);
    void *lent;

    (void)state;
    CHECK_OK(try_both(&with, site, "auto", &lent));
    assert_ptr_equal(lent, &asked);
    assert_int_equal(requests, 1);
    assert_int_equal(takes, 1);
    assert_int_equal(asked.group_mode, 3);
    assert_int_equal(asked.id, 0);
    assert_int_equal(asked.num_groups, RANKS / GROUP);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(asked.groups[i / GROUP].ids[i % GROUP], places[i]);
    assert_int_equal(asked.groups[1].size, GROUP);
    oriel_site_destroy(site);
}

static void test_a_newer_extension_will_do(void **state)
{
    struct {
        xla_collectives first;
        void *more[2]; /* NULL: windows that are not there */
    } later = {.first = collectives(sizeof later, 0, 2)};
    oriel_site *site = site_of(places);
    void *lent;

    (void)state;
    extension = &later.first;
    CHECK_OK(try_both(&with, site, "xla", &lent));
    assert_ptr_equal(lent, &asked);
    oriel_site_destroy(site);
}

static void test_without_an_extension_a_call_goes_without(void **state)
{
    xla_collectives strange[] = {collectives(sizeof *strange, 1, 0),
                                 collectives(sizeof *strange - 8, 0, 1),
                                 collectives(sizeof *strange, 0, 1)};
    const xla_collectives *cases[] = {NULL, &strange[0], &strange[1], &strange[2], &strange[2]};
    const char *said = "ORIEL_NCCL_COMM is xla, but jaxlib 0.10.2 lends no communicator";
    void *lent;

    (void)state;
    strange[2].get = NULL;
    for (int i = 0; i < 5; i++) {
        const xla_api *api = i < 4 ? &with : &without;
        oriel_site *site = site_of(places);

        extension = cases[i];
        CHECK_OK(try_both(api, site, "auto", &lent));
        assert_null(lent);
        oriel_site_destroy(site);
        site = site_of(places);
        assert_int_equal(try_both(api, site, "xla", &lent), ORIEL_ERR_UNSUPPORTED);
        assert_memory_equal(oriel_last_error(), said, strlen(said));
        oriel_site_destroy(site);
    }
    assert_int_equal(requests + takes, 0);
}

static void test_a_call_without_places_borrows_nothing(void **state)
{
    oriel_site *site = site_of(NULL);

    (void)state;
    assert_int_equal(site->loan.num_groups, 0);
    oriel_site_destroy(site);
}

/* XLA would ask NCCL, which would refuse, and the program would fail. */
static void test_ranks_that_share_a_gpu_ask_only_if_nccl_allows_it(void **state)
{
    oriel_site *site = site_of(places);
    void *lent;

    (void)state;
    oriel_device_card(&comm->heap, 1)->gpu[0] = oriel_device_card(&comm->heap, 0)->gpu[0];
    CHECK_OK(try_both(&with, site, "auto", &lent));
    assert_null(lent);
    oriel_site_destroy(site);
    site = site_of(places);
    assert_int_equal(try_both(&with, site, "xla", &lent), ORIEL_ERR_UNSUPPORTED);
    assert_non_null(strstr(oriel_last_error(), "NCCL_MULTI_RANK_GPU_ENABLE=1"));
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    CHECK_OK(try_both(&with, site, "xla", &lent));
    assert_ptr_equal(lent, &asked);
    oriel_site_destroy(site);
}

static void test_what_xla_refuses_is_an_error(void **state)
{
    oriel_site *site = site_of(places);
    void *lent;

    (void)state;
    refuses = 1;
    assert_int_equal(try_both(&with, site, "auto", &lent), ORIEL_ERR_UNSUPPORTED);
    assert_string_equal(oriel_last_error(), "this jaxlib refused its communicator");
    oriel_site_destroy(site);
}

static void test_places_are_checked(void **state)
{
    oriel_site *site = NULL;

    (void)state;
    assert_int_equal(make_site(places, GROUP, &site), ORIEL_ERR_INVALID);
    assert_string_equal(oriel_last_error(), "attribute places has 2 entries for 4 ranks");
}

int main(void)
{
#define LENDING(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LENDING(test_a_call_gets_the_communicator_of_its_groups),
        LENDING(test_a_newer_extension_will_do),
        LENDING(test_without_an_extension_a_call_goes_without),
        LENDING(test_a_call_without_places_borrows_nothing),
        LENDING(test_ranks_that_share_a_gpu_ask_only_if_nccl_allows_it),
        LENDING(test_what_xla_refuses_is_an_error),
        LENDING(test_places_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
