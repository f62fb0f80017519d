#include "ffi/lend.h"

#include <stdio.h>

#include "base/config.h"
#include "base/log.h"
#include "core/nccl/borrow.h"
#include "ffi/ffi.h"

/* Of a site: it asks once whether it may ask. */
enum { UNKNOWN, LENT, NOT_LENT };
/* XLA's own collectives have the same. */
enum { COMMUNICATION_ID = 0 };

static char runtime[64] = "this jaxlib";

void oriel_ffi_runtime(const char *name)
{
    snprintf(runtime, sizeof runtime, "%s", name);
}

static const xla_collectives *find_collectives(const xla_frame *frame)
{
    const xla_api *api = frame->api;
    xla_find_args args = {.struct_size = sizeof args, .ctx = frame->ctx, .type = XLA_COLLECTIVES};
    const xla_collectives *found;

    if (api->struct_size < offsetof(xla_api, find_extension) + sizeof api->find_extension ||
        api->find_extension == NULL ||
        frame_refused(frame, api->find_extension(&args), "to look for an extension") != ORIEL_OK)
        return NULL;
    found = (const xla_collectives *)(const void *)args.found;
    if (found == NULL || found->base.type != XLA_COLLECTIVES ||
        found->base.major != XLA_COLLECTIVES_MAJOR || found->base.struct_size < sizeof *found ||
        found->request == NULL || found->get == NULL)
        return NULL;
    return found;
}

static xla_communicator_args args_of(const site_loan *loan, size_t bytes)
{
    return (xla_communicator_args){.struct_size = bytes,
                                   .group_mode = XLA_GROUP_FLATTENED_ID,
                                   .groups = loan->groups,
                                   .num_groups = loan->num_groups,
                                   .id = COMMUNICATION_ID};
}

/* Why not; NULL: it may be asked for. */
static const char *obstacle(const xla_frame *frame, const oriel_group *group, char *text,
                            size_t len)
{
    if (find_collectives(frame) != NULL)
        return oriel_borrow_obstacle(group, text, len);
    snprintf(text, len, "%s lends no communicator to calls: its FFI has no collectives extension",
             runtime);
    return text;
}

/* The same on all members: what they look at is. */
static oriel_status decide(const xla_frame *frame, site_loan *loan, const oriel_group *group)
{
    char text[160];
    const char *why = obstacle(frame, group, text, sizeof text);

    atomic_store(&loan->state, why == NULL ? LENT : NOT_LENT);
    if (why == NULL)
        return ORIEL_OK;
    if (oriel_config_number(ORIEL_OPT_NCCL_COMM) == ORIEL_COMM_XLA) {
        atomic_store(&loan->state, UNKNOWN);
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "ORIEL_NCCL_COMM is xla, but %s", why);
    }
    oriel_log(ORIEL_LOG_INFO, "XLA's communicator is not borrowed: %s", why);
    return ORIEL_OK;
}

oriel_status lend_request(const xla_frame *frame, oriel_site *site, const oriel_group *group)
{
    site_loan *loan = oriel_site_loan(site);
    const xla_collectives *collectives;
    xla_communicator_args args;
    oriel_status st = ORIEL_OK;

    if (loan->num_groups == 0)
        return ORIEL_OK;
    if (atomic_load(&loan->state) == UNKNOWN)
        st = decide(frame, loan, group);
    if (st != ORIEL_OK || atomic_load(&loan->state) != LENT)
        return st;
    collectives = find_collectives(frame);
    if (collectives == NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "%s has taken its collectives extension back",
                          runtime);
    args = args_of(loan, offsetof(xla_communicator_args, communicator));
    return frame_refused(frame, collectives->request(collectives, &args), "its communicator");
}

oriel_status lend_take(const xla_frame *frame, oriel_site *site, nccl_comm *comm_p)
{
    site_loan *loan = oriel_site_loan(site);
    const xla_collectives *collectives;
    xla_communicator_args args;
    oriel_status st;

    *comm_p = NULL;
    if (loan->num_groups == 0 || atomic_load(&loan->state) != LENT)
        return ORIEL_OK;
    collectives = find_collectives(frame);
    if (collectives == NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "%s has taken its collectives extension back",
                          runtime);
    args = args_of(loan, sizeof args);
    st = frame_refused(frame, collectives->get(collectives, &args), "its communicator");
    if (st == ORIEL_OK)
        *comm_p = args.communicator;
    return st;
}
