/* A site's name says which call it is: python/oriel/_calls gives each call of a module one of its
 * own. XLA has no reason to copy a call, and would copy its name; two copies that run in an order
 * of their own on each rank would exchange their data. So the process counts, for each name, how
 * many calls it has lowered and how many sites XLA has made: where there are more sites, and two of
 * them run in one execution, the call is refused. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/sys.h"
#include "ffi/ffi.h"
#include "ffi/site.h"

/* What a site keeps of one device. */
struct site_device {
    site_member member;       /* what it is in `world` */
    _Atomic uint64_t world;   /* the number of the world that `member` is of */
    int ordinal;              /* XLA's */
    struct site_device *next; /* in the same row */
};

/* ---- names ---------------------------------------------------------------------------- */

struct name_count {
    uint64_t name;           /* of calls */
    uint32_t lowered, sites; /* how often it was lowered; how many sites it had */
    struct name_count *next; /* in the same row */
};

static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static struct name_count *names[256]; /* for good: a program may be lowered again at any time */
static uint32_t serials;              /* sites so far */

/* Called with the lock held. NULL: no memory. */
static struct name_count *count_of(uint64_t name)
{
    struct name_count **row = &names[oriel_mix(name) % 256];
    struct name_count *found = *row;

    while (found != NULL && found->name != name)
        found = found->next;
    if (found == NULL && (found = oriel_sys_now->alloc(sizeof *found)) != NULL) {
        found->name = name;
        found->next = *row;
        *row = found;
    }
    return found;
}

void oriel_ffi_lowered(uint64_t name)
{
    struct name_count *count;

    pthread_mutex_lock(&names_lock);
    count = count_of(name);
    if (count != NULL)
        count->lowered++;
    pthread_mutex_unlock(&names_lock);
}

static void enrol(oriel_site *site)
{
    struct name_count *count;

    pthread_mutex_lock(&names_lock);
    site->serial = ++serials;
    count = count_of(site->name);
    if (count != NULL)
        site->doubtful = ++count->sites > count->lowered;
    pthread_mutex_unlock(&names_lock);
}

/* ---- what a call says ---------------------------------------------------------------------- */

/* All entries of an array attribute are from 0 to below `limit`. */
static oriel_status check_array(const char *name, const int64_t *values, int64_t n, int64_t limit)
{
    for (int64_t i = 0; i < n; i++) {
        if (values[i] < 0 || values[i] >= limit)
            return oriel_fail(ORIEL_ERR_INVALID, "attribute %s names %lld of %lld", name,
                              (long long)values[i], (long long)limit);
    }
    return ORIEL_OK;
}

/* How many of a group's entries are ranks, or places of such: the others follow, and are -1. */
static int64_t members_of(const int64_t *entries, int64_t n)
{
    while (n > 0 && entries[n - 1] == -1)
        n--;
    return n;
}

static oriel_status check_groups(const site_attrs *attrs)
{
    oriel_status st = ORIEL_OK;

    for (int64_t i = 0; st == ORIEL_OK && i < attrs->num_ranks; i += attrs->group_size) {
        const int64_t *group = attrs->ranks + i;

        st = check_array("groups", group, members_of(group, attrs->group_size), attrs->world);
    }
    return st;
}

static oriel_status check_attrs(const site_attrs *attrs)
{
    oriel_status st;

    if (attrs->kind < 1 || attrs->kind >= ORIEL_KIND_COUNT)
        return oriel_fail(ORIEL_ERR_INVALID, "attribute kind is %lld", (long long)attrs->kind);
    if (attrs->name == 0)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "a call of oriel has no name: this JAX did not say that it had lowered "
                          "the program, or the call was not made by oriel");
    if (attrs->group_size < 1 || attrs->num_ranks < 1 || attrs->num_ranks % attrs->group_size != 0)
        return oriel_fail(ORIEL_ERR_INVALID, "attribute groups has %lld ranks in groups of %lld",
                          (long long)attrs->num_ranks, (long long)attrs->group_size);
    if (attrs->reduce < 0 || attrs->reduce >= ORIEL_REDOP_COUNT)
        return oriel_fail(ORIEL_ERR_INVALID, "attribute reduce is %lld", (long long)attrs->reduce);
    if (attrs->kind == ORIEL_KIND_KERNEL && oriel_kernel_find((uint64_t)attrs->kernel) == NULL)
        return oriel_fail(ORIEL_ERR_INVALID,
                          "attribute kernel is %016llx, which this process has not loaded: call "
                          "oriel.kernel before the program is compiled",
                          (unsigned long long)attrs->kernel);
    if (attrs->num_pairs % 2 != 0)
        return oriel_fail(ORIEL_ERR_INVALID, "attribute pairs has %lld entries",
                          (long long)attrs->num_pairs);
    if (attrs->num_places != 0 && attrs->num_places != attrs->num_ranks)
        return oriel_fail(ORIEL_ERR_INVALID, "attribute places has %lld entries for %lld ranks",
                          (long long)attrs->num_places, (long long)attrs->num_ranks);
    st = check_array("root", &attrs->root, 1, attrs->group_size);
    if (st == ORIEL_OK)
        st = check_array("after", &attrs->after, 1, SITE_MOST_EXTRA);
    if (st == ORIEL_OK)
        st = check_array("into", &attrs->into, 1, SITE_MOST_EXTRA);
    if (st == ORIEL_OK)
        st = check_array("read", &attrs->read, 1, INT64_MAX);
    if (st == ORIEL_OK)
        st = check_array("via", &attrs->via, 1, ORIEL_VIA_COUNT);
    if (st == ORIEL_OK)
        st = check_array("pairs", attrs->pairs, attrs->num_pairs, attrs->group_size);
    if (st == ORIEL_OK)
        st = check_groups(attrs);
    return st;
}

static void copy_letters(char *out, size_t room, const int64_t *letters, int64_t n)
{
    size_t bytes = (size_t)n * sizeof *letters;

    if (n > 0)
        memcpy(out, letters, bytes < room ? bytes : room - 1);
}

static void fill(oriel_site *site, const site_attrs *attrs)
{
    int *pairs = site->ranks + attrs->num_ranks;

    site->half = attrs->half;
    site->name = (uint64_t)attrs->name;
    site->module = (uint64_t)attrs->module;
    site->after = (int)attrs->after;
    site->into = (int)attrs->into;
    site->read = (uint64_t)attrs->read;
    site->world = attrs->world;
    site->group_size = (int)attrs->group_size;
    site->num_ranks = (int)attrs->num_ranks;
    for (int64_t i = 0; i < attrs->num_ranks; i++)
        site->ranks[i] = (int)attrs->ranks[i];
    for (int64_t i = 0; i < attrs->num_pairs; i++)
        pairs[i] = (int)attrs->pairs[i];
    if (attrs->kind == ORIEL_KIND_KERNEL)
        site->kernel = oriel_kernel_find((uint64_t)attrs->kernel);
    site->num_values = attrs->num_values;
    if (attrs->num_values > 0)
        memcpy(site->values, attrs->values, (size_t)attrs->num_values * sizeof *site->values);
    copy_letters(site->said, sizeof site->said, attrs->said, attrs->num_said);
    copy_letters(site->told, sizeof site->told, attrs->told, attrs->num_told);
    site->op = (oriel_op){
        .kind = (enum oriel_kind)attrs->kind,
        .redop = (oriel_redop)attrs->reduce,
        .via = (oriel_via)attrs->via,
        .root = (int)attrs->root,
        .call = oriel_mix((uint64_t)attrs->name ^ oriel_mix((uint64_t)attrs->program)) | 1,
        .pairs = pairs,
        .num_pairs = (int)attrs->num_pairs / 2,
    };
}

/* Places of the groups, as XLA wants them. */
static oriel_status fill_loan(oriel_site *site, const site_attrs *attrs)
{
    size_t rows = (size_t)(attrs->num_places / attrs->group_size);
    size_t row = (size_t)attrs->group_size;

    if (rows == 0)
        return ORIEL_OK;
    site->places = oriel_sys_now->alloc(rows * row * sizeof *site->places);
    site->rows = oriel_sys_now->alloc(rows * sizeof *site->rows);
    if (site->places == NULL || site->rows == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a call site");
    memcpy(site->places, attrs->places, rows * row * sizeof *site->places);
    for (size_t i = 0; i < rows; i++) {
        const int64_t *places = site->places + i * row;

        site->rows[i] = (xla_replica_group){.ids = places,
                                            .size = (size_t)members_of(places, attrs->group_size)};
    }
    site->loan.groups = site->rows;
    site->loan.num_groups = rows;
    site->loan.needs = attrs->communicates != 0;
    return ORIEL_OK;
}

oriel_status oriel_site_create(const site_attrs *attrs, oriel_site **site_p)
{
    oriel_status st = check_attrs(attrs);
    oriel_site *site;

    if (st != ORIEL_OK)
        return st;
    site = oriel_sys_now->alloc(sizeof *site);
    if (site == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a call site");
    pthread_mutex_init(&site->lock, NULL);
    site->ranks =
        oriel_sys_now->alloc((size_t)(attrs->num_ranks + attrs->num_pairs) * sizeof *site->ranks);
    site->values = oriel_sys_now->alloc(((size_t)attrs->num_values + 1) * sizeof *site->values);
    if (site->ranks == NULL || site->values == NULL) {
        oriel_site_destroy(site);
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a call site");
    }
    fill(site, attrs);
    st = fill_loan(site, attrs);
    if (st != ORIEL_OK) {
        oriel_site_destroy(site);
        return st;
    }
    enrol(site);
    *site_p = site;
    return ORIEL_OK;
}

static void release_row(struct site_device *device)
{
    while (device != NULL) {
        struct site_device *next = device->next;

        oriel_sys_now->release(device);
        device = next;
    }
}

void oriel_site_destroy(void *object)
{
    oriel_site *site = object;

    if (site == NULL)
        return;
    oriel_site_destroy(site->received);
    for (int i = 0; i < SITE_ROWS; i++)
        release_row(atomic_load(&site->devices[i]));
    pthread_mutex_destroy(&site->lock);
    oriel_sys_now->release(site->ranks);
    oriel_sys_now->release(site->values);
    oriel_sys_now->release(site->places);
    oriel_sys_now->release(site->rows);
    oriel_sys_now->release(site);
}

const int *oriel_site_ranks(const oriel_site *site, int rank, int *n_p)
{
    int at = 0;

    while (at < site->num_ranks && site->ranks[at] != rank)
        at++;
    if (at == site->num_ranks)
        return NULL;
    at = at / site->group_size * site->group_size;
    *n_p = 0;
    while (*n_p < site->group_size && site->ranks[at + *n_p] >= 0)
        ++*n_p;
    return site->ranks + at;
}

static struct site_device *find_device(const oriel_site *site, int ordinal)
{
    struct site_device *device = atomic_load(&site->devices[(unsigned)ordinal % SITE_ROWS]);

    while (device != NULL && device->ordinal != ordinal)
        device = device->next;
    return device;
}

site_member *oriel_site_member(const oriel_site *site, int ordinal, uint64_t world)
{
    struct site_device *device = find_device(site, ordinal);

    return device != NULL && atomic_load(&device->world) == world ? &device->member : NULL;
}

/* Called with the lock held. */
static struct site_device *add_device(oriel_site *site, int ordinal)
{
    struct site_device *_Atomic *row = &site->devices[(unsigned)ordinal % SITE_ROWS];
    struct site_device *device = oriel_sys_now->alloc(sizeof *device);

    if (device == NULL)
        return NULL;
    device->ordinal = ordinal;
    device->next = atomic_load(row);
    atomic_store(row, device);
    return device;
}

/* Called with the lock held. */
static oriel_status fill_member(const oriel_site *site, oriel_calls *calls, oriel_group *group,
                                int rank, site_member *member)
{
    oriel_status st = oriel_calls_find(calls, group->hash, site->name, rank, &member->arrivals);

    member->executions = NULL;
    if (st == ORIEL_OK && site->module != 0)
        st = oriel_calls_find(calls, group->hash, site->module, rank, &member->executions);
    if (st != ORIEL_OK)
        return st;
    if (site->doubtful)
        atomic_store(&member->arrivals->doubtful, 1);
    member->group = group;
    member->rank = rank;
    member->index = oriel_group_index(group, rank);
    atomic_store(&member->loan, 0);
    member->met = 0;
    atomic_store(&member->last, 0);
    return ORIEL_OK;
}

oriel_status oriel_site_add_member(oriel_site *site, int ordinal, uint64_t world,
                                   oriel_calls *calls, oriel_group *group, int rank,
                                   site_member **member_p)
{
    static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER; /* of the calls of all sites */
    struct site_device *device;
    oriel_status st = ORIEL_OK;

    pthread_mutex_lock(&calls_lock);
    pthread_mutex_lock(&site->lock);
    device = find_device(site, ordinal);
    if (device == NULL)
        device = add_device(site, ordinal);
    if (device == NULL)
        st = oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a call site");
    else if (atomic_load(&device->world) != world)
        st = fill_member(site, calls, group, rank, &device->member);
    if (st == ORIEL_OK) {
        atomic_store(&device->world, world); /* others may read it from now on */
        *member_p = &device->member;
    }
    pthread_mutex_unlock(&site->lock);
    pthread_mutex_unlock(&calls_lock);
    return st;
}

/* ---- arriving ---------------------------------------------------------------------------- */

/* Calls of one execution have its run. */
static uint16_t count_execution(oriel_arrival_count *executions, uint32_t run)
{
    uint64_t last, now;

    if (executions == NULL)
        return 0;
    last = atomic_load(&executions->last);
    do {
        if ((uint32_t)last != 0 && last >> 32 == run)
            return (uint16_t)last;
        now = (uint64_t)run << 32 | (uint32_t)(last + 1);
    } while (!atomic_compare_exchange_weak(&executions->last, &last, now));
    return (uint16_t)now;
}

oriel_status oriel_site_arrive(const oriel_site *site, site_member *member, int64_t run,
                               uint64_t *count_p, uint16_t *execution_p)
{
    oriel_arrival_count *arrivals = member->arrivals;
    uint32_t low = (uint32_t)run; /* XLA counts in 32 bits, from anywhere */
    uint64_t last = atomic_exchange(&arrivals->last, (uint64_t)site->serial << 32 | low);
    uint64_t count = atomic_fetch_add(&arrivals->count, 1);
    uint64_t before = atomic_exchange(&member->last, (uint64_t)low << 32 | (uint32_t)(count + 1));

    /* Threads may change places before they count or after it: only where both have grown is
     * their order that of the runs. */
    if (before != 0 && ((int32_t)(low - (uint32_t)(before >> 32)) < 0 ||
                        (int32_t)((uint32_t)(count + 1) - (uint32_t)before) < 0))
        return oriel_fail(ORIEL_ERR_INVALID,
                          "an earlier run of the program than the last one has come to it on rank "
                          "%d: several threads launch one jitted function, and other processes "
                          "cannot know in which order",
                          member->rank);
    if (last != 0 && (uint32_t)last == low && last >> 32 != site->serial &&
        atomic_load(&arrivals->doubtful))
        return oriel_fail(ORIEL_ERR_INVALID,
                          "XLA has copied the call, and nothing tells the copies apart: report "
                          "the program, please");
    *count_p = count;
    *execution_p = count_execution(member->executions, low);
    return ORIEL_OK;
}
