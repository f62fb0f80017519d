/* A call site: one custom call instruction of one compiled program. XLA makes
 * one at instantiation and hands it back at every execution. */
#ifndef ORIEL_FFI_SITE_H
#define ORIEL_FFI_SITE_H

#include "ffi/xla_abi.h"
#include "ops/kernel/kernel.h"

typedef struct oriel_site oriel_site;

/* What a site's attributes say. */
typedef struct site_attrs {
    int64_t kind, module, site, world, group_size, reduce, root, kernel, via, communicates;
    int64_t num_ranks, num_pairs, num_values, num_places, num_said;
    const int64_t *ranks, *pairs, *values, *places;
    const int64_t *said; /* eight letters in each */
} site_attrs;

oriel_status oriel_site_create(const site_attrs *attrs, oriel_site **site_p);
void oriel_site_destroy(void *site);

int64_t oriel_site_world(const oriel_site *site);
/* What the call is, without buffers; the arrays live as long as the site. */
const oriel_op *oriel_site_op(const oriel_site *site);
/* What a kernel's call runs, and with which values; they live as long as the site. */
const oriel_kernel *oriel_site_kernel(const oriel_site *site);
const int64_t *oriel_site_values(const oriel_site *site, int64_t *n_p);
/* The same in words: "scale=2.0, root=0". */
const char *oriel_site_said(const oriel_site *site);
/* The list of ranks of the group that `rank` belongs to; NULL: none does. */
const int *oriel_site_ranks(const oriel_site *site, int rank, int *n_p);
/* A site remembers the number of the last world in which a graph captured the call; 0: none. */
void oriel_site_capture(oriel_site *site, uint64_t world);
uint64_t oriel_site_captured(const oriel_site *site);
/* The groups whose communicators a call may borrow from XLA. */
typedef struct site_loan {
    const xla_replica_group *groups;
    size_t num_groups; /* 0: it does not borrow */
    int needs;         /* the call itself uses the communicator, not its buffers alone */
} site_loan;
const site_loan *oriel_site_loan(const oriel_site *site);

/* Which member of the call a device is, in one world. */
typedef struct site_member {
    oriel_group *group;
    int rank;
    int index;        /* of the rank in the group */
    _Atomic int loan; /* see lend.c */
    int64_t met;      /* 1 + the last run in which it met the others for a loan; 0: none */
} site_member;
/* Returns the member that XLA's device `ordinal` is in the world of this number; NULL: nobody has
 * added it yet. Takes no lock. */
site_member *oriel_site_member(const oriel_site *site, int ordinal, uint64_t world);
/* The caller holds the world. Where several threads add a member the first one's stays. */
oriel_status oriel_site_add_member(oriel_site *site, int ordinal, uint64_t world,
                                   oriel_group *group, int rank, site_member **member_p);
/* Which call of which program this is, whatever copy of it: equal on all processes. */
uint64_t oriel_site_call(const oriel_site *site);
/* Which instruction this is: equal on all processes that compiled the program. */
uint64_t oriel_site_identity(const oriel_site *site);
/* How many instructions of the program stem from the same call in the source.
 * Called by executions alone: from then on no further one can come. */
uint32_t oriel_site_instances(const oriel_site *site);
/* Counts executions of the site by `member` within `run`: 0, 1, ... */
uint64_t oriel_site_count(oriel_site *site, site_member *member, int64_t run);

#endif
