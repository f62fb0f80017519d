#include "ffi/lend.h"

#include <stdio.h>

#include "base/config.h"
#include "base/log.h"
#include "core/nccl/borrow.h"
#include "ffi/ffi.h"

/* What a member knows in one world. */
enum { UNKNOWN, LENT, NOT_LENT };
/* XLA's own collectives have this one too, and so share the communicator. */
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
        oriel_xla_refused(frame, api->find_extension(&args), "to look for an extension") !=
            ORIEL_OK)
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

/* Says why XLA's communicator cannot be had; NULL: it may be asked for. */
static const char *obstacle(const xla_frame *frame, const oriel_group *group, char *text,
                            size_t len)
{
    if (find_collectives(frame) != NULL)
        return oriel_borrow_obstacle(group, text, len);
    snprintf(text, len, "%s lends no communicator to calls: its FFI has no collectives extension",
             runtime);
    return text;
}

int oriel_lend_is_decided(const site_member *member)
{
    return atomic_load(&member->loan) != UNKNOWN;
}

/* All members of a group decide alike, since what they look at is the same. */
oriel_status oriel_lend_decide(const xla_frame *frame, site_member *member)
{
    char text[160];
    const char *why;

    if (member->group->spans) { /* members on other machines reach no windows */
        atomic_store(&member->loan, NOT_LENT);
        return ORIEL_OK;
    }
    why = obstacle(frame, member->group, text, sizeof text);
    if (why != NULL && oriel_config_number(ORIEL_OPT_NCCL_COMM) == ORIEL_COMM_XLA)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "ORIEL_NCCL_COMM is xla, but %s", why);
    if (why != NULL)
        oriel_log(ORIEL_LOG_INFO, "XLA's communicator is not borrowed: %s", why);
    atomic_store(&member->loan, why == NULL ? LENT : NOT_LENT);
    return ORIEL_OK;
}

/* `*collectives_p` is NULL where nothing is lent to the member. */
static oriel_status find_lender(const xla_frame *frame, const site_member *member,
                                const xla_collectives **collectives_p)
{
    *collectives_p = NULL;
    if (atomic_load(&member->loan) != LENT)
        return ORIEL_OK;
    *collectives_p = find_collectives(frame);
    if (*collectives_p == NULL)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "%s has taken its collectives extension back",
                          runtime);
    return ORIEL_OK;
}

oriel_status oriel_lend_request(const xla_frame *frame, const oriel_site *site,
                                const site_member *member)
{
    xla_communicator_args args =
        args_of(&site->loan, offsetof(xla_communicator_args, communicator));
    const xla_collectives *collectives;
    oriel_status st = find_lender(frame, member, &collectives);

    if (collectives == NULL)
        return st;
    return oriel_xla_refused(frame, collectives->request(collectives, &args), "its communicator");
}

oriel_status oriel_lend_take(const xla_frame *frame, const oriel_site *site,
                             const site_member *member, nccl_comm *comm_p)
{
    xla_communicator_args args = args_of(&site->loan, sizeof args);
    const xla_collectives *collectives;
    oriel_status st = find_lender(frame, member, &collectives);

    *comm_p = NULL;
    if (collectives == NULL)
        return st;
    st = oriel_xla_refused(frame, collectives->get(collectives, &args), "its communicator");
    if (st == ORIEL_OK)
        *comm_p = args.communicator;
    return st;
}
