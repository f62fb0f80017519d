/* A call site: one custom call instruction of one compiled program. XLA makes
 * one at instantiation and hands it back at every execution. */
#ifndef ORIEL_FFI_SITE_H
#define ORIEL_FFI_SITE_H

#include <pthread.h>

#include "core/world/names.h"
#include "ffi/calls.h"
#include "ffi/xla_abi.h"
#include "ops/kernel/kernel.h"

/* Which buffers of a frame are an operation's: of a sendrecv two operations have some. */
enum site_half { SITE_WHOLE, SITE_SENT, SITE_RECEIVED };

/* What a site's attributes say. */
typedef struct site_attrs {
    /* As ffi.h describes them. */
    int64_t kind, name, module, program, world, group_size, reduce, root, kernel, via, communicates,
        after, into, read;
    /* Entries of the arrays below. */
    int64_t num_ranks, num_pairs, num_values, num_places, num_said, num_told;
    const int64_t *ranks, *pairs, *values, *places; /* in XLA's memory, for the stage alone */
    const int64_t *said, *told;                     /* eight letters in each */
    enum site_half half;
} site_attrs;

/* The groups whose communicators a call may borrow from XLA. */
typedef struct site_loan {
    const xla_replica_group *groups; /* all of the call, by places of devices */
    size_t num_groups;               /* 0: it does not borrow */
    int needs; /* the call itself uses the communicator, not its buffers alone */
} site_loan;

/* Devices by ordinal. The ordinals of a process follow each other, so that up to this many devices
 * have a row of their own. */
enum { SITE_ROWS = 1024, SITE_SAID = 64, SITE_MOST_EXTRA = 1 << 16 };

/* What `op`, `values` and `loan` point to lives as long as the site. */
typedef struct oriel_site {
    struct oriel_site *received; /* of a sendrecv: what it receives, this one being what it sends;
                                  * lives as long. NULL: another call */
    enum site_half half;         /* of the frame's buffers, that are the operation's */
    uint64_t name;               /* the call's: equal on all processes */
    uint64_t module;             /* the program's, of calls over axes; 0: over the world */
    uint32_t serial;             /* which of this process's sites it is, from 1 */
    int doubtful;               /* more sites of the name than lowered calls: XLA may have copied */
    int after;                  /* operands that only order the call: the last ones */
    int into;                   /* operands before these that are windows, to which results go */
    uint64_t read;              /* a bit for each of the first operands: it must lie in a window */
    int64_t world;              /* ranks of the comm that the program was lowered for */
    oriel_op op;                /* without buffers */
    const oriel_kernel *kernel; /* what a kernel's call runs ... */
    int64_t *values;            /* ... and with which values */
    int64_t num_values;         /* 64-bit words */
    char said[SITE_SAID];       /* the same in words: "scale=2.0, root=0" */
    char told[HEAP_NAME_LETTERS]; /* the call in words, and from the second line on its program */
    int num_ranks, group_size;    /* entries of all groups; of each */
    int *ranks;                   /* -1 after those of a smaller group; then the pairs of `op` */
    int64_t *places;              /* of the ranks, in the program's list of devices */
    xla_replica_group *rows;      /* of places */
    site_loan loan;               /* what it may borrow */
    _Atomic uint64_t captured;    /* the last world in which a graph captured the call; 0: none */
    _Atomic uint64_t layout;      /* of that world, where graphs of the call may go on in another
                                   * of the same; 0: they may not */
    pthread_mutex_t lock;         /* of all that changes in `devices` */
    struct site_device *_Atomic devices[SITE_ROWS]; /* by ordinal, modulo; each a list */
} oriel_site;

oriel_status oriel_site_create(const site_attrs *attrs, oriel_site **site_p);
void oriel_site_destroy(void *site);

/* The list of ranks of the group that `rank` belongs to; NULL: none does. */
const int *oriel_site_ranks(const oriel_site *site, int rank, int *n_p);

/* Which member of the call a device is, in one world. */
typedef struct site_member {
    oriel_group *group; /* whose members meet in the call */
    int rank;           /* in the world */
    int index;          /* of the rank in the group */
    _Atomic int loan;   /* see lend.c */
    int64_t met;        /* 1 + the last run in which it met the others for a loan; 0: none */
    oriel_arrival_count *arrivals;   /* of the rank at the call */
    oriel_arrival_count *executions; /* of the program that had a call of this group; NULL: over
                                      * the world, where programs may differ */
    _Atomic uint64_t last; /* arrival: low 32 bits of its run, of 1 + its count; 0: none yet */
} site_member;
/* Returns the member that XLA's device `ordinal` is in the world of this number; NULL: nobody has
 * added it yet. Takes no lock. */
site_member *oriel_site_member(const oriel_site *site, int ordinal, uint64_t world);
/* The caller holds the world, whose `calls` they are. Where several threads add a member the first
 * one's stays. */
oriel_status oriel_site_add_member(oriel_site *site, int ordinal, uint64_t world,
                                   oriel_calls *calls, oriel_group *group, int rank,
                                   site_member **member_p);
/* Counts an arrival of the member in XLA's `run` of the program: 0, 1, ... and says in which
 * execution that was, 1, 2, ..., of those in which the rank made a call of the program in this
 * group. Members make the same calls in each, so that one which left an execution early, or went
 * round a loop once more, is told by it. Fails where what the call is found by would not be the
 * same on all ranks: a program that several threads launch, or a call that XLA has copied. */
oriel_status oriel_site_arrive(const oriel_site *site, site_member *member, int64_t run,
                               uint64_t *count_p, uint16_t *execution_p);

#endif
