/* XLA may copy a call: a jitted function called twice is lowered once, and its
 * custom call appears twice, with the same attributes, after inlining. The
 * copies are told apart by the order in which XLA instantiates them, which
 * follows the compiled program and is thus the same on all processes. XLA does
 * not say which program it instantiates, and does so on threads of its own; but
 * a call is lowered before its program is instantiated, and all of a program is
 * instantiated before it is executed. So the copies of one program are those
 * instantiated since the call was last lowered or executed. Their number is part
 * of an operation's record: processes that counted differently get an error
 * instead of wrong sums. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/status.h"
#include "base/sys.h"
#include "base/hash.h"
#include "ffi/ffi.h"
#include "ffi/site.h"

/* XLA:CPU has at most 32 executions in flight; twice that many runs are
 * remembered per device, and the one not used for longest is forgotten. */
enum { RUNS = 64, SAID_BYTES = 64 };
/* Devices by ordinal. The ordinals of a process follow each other, so that up to this many devices
 * have a row of their own. */
enum { ROWS = 1024 };

struct run_count {
    int64_t run;
    uint64_t count;
    uint64_t used; /* tick of the last look-up */
};

/* What a site keeps of one device. */
struct device {
    site_member member;     /* the first field: oriel_site_count gets its address */
    _Atomic uint64_t world; /* the number of the world that `member` is of */
    int ordinal;
    struct device *next; /* in the same row */
    struct run_count runs[RUNS];
    uint64_t tick;
};

/* Copies of one source call in one program. */
struct family {
    uint64_t call;      /* module and site */
    _Atomic int closed; /* no further copy can belong to it */
    uint32_t instances;
    uint32_t refs;
    struct family *next;
};

struct oriel_site {
    struct family *family;
    uint32_t copy;
    int64_t world;
    oriel_op op; /* without buffers */
    const oriel_kernel *kernel;
    int64_t *values;
    int64_t num_values;
    char said[SAID_BYTES];
    int num_ranks, group_size;
    int *ranks;              /* then the pairs of `op` */
    int64_t *places;         /* of the ranks, in the program's list of devices */
    xla_replica_group *rows; /* of places */
    site_loan loan;
    _Atomic uint64_t captured; /* number of the world; see oriel_site_capture */
    pthread_mutex_t lock;      /* of all that changes in `devices` */
    struct device *_Atomic devices[ROWS];
};

static pthread_mutex_t families_lock = PTHREAD_MUTEX_INITIALIZER;
static struct family *families;

static uint64_t call_hash(int64_t module, int64_t site)
{
    return oriel_mix((uint64_t)module) ^ oriel_mix((uint64_t)site + 1);
}

/* Called with the lock held. */
static struct family *open_family(uint64_t call)
{
    struct family *family = families;

    while (family != NULL && (family->call != call || atomic_load(&family->closed)))
        family = family->next;
    return family;
}

void oriel_ffi_lowering(int64_t module, int64_t site)
{
    struct family *family;

    pthread_mutex_lock(&families_lock);
    family = open_family(call_hash(module, site));
    if (family != NULL)
        atomic_store(&family->closed, 1);
    pthread_mutex_unlock(&families_lock);
}

static struct family *family_join(uint64_t call, uint32_t *copy_p)
{
    struct family *family;

    pthread_mutex_lock(&families_lock);
    family = open_family(call);
    if (family == NULL) {
        family = oriel_sys_now->alloc(sizeof *family);
        if (family != NULL) {
            family->call = call;
            family->next = families;
            families = family;
        }
    }
    if (family != NULL) {
        *copy_p = family->instances++;
        family->refs++;
    }
    pthread_mutex_unlock(&families_lock);
    return family;
}

static void family_leave(struct family *family)
{
    struct family **link = &families;

    pthread_mutex_lock(&families_lock);
    if (--family->refs == 0) {
        while (*link != family)
            link = &(*link)->next;
        *link = family->next;
        oriel_sys_now->release(family);
    }
    pthread_mutex_unlock(&families_lock);
}

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

static oriel_status check_attrs(const site_attrs *attrs)
{
    oriel_status st;

    if (attrs->kind < 1 || attrs->kind >= ORIEL_KIND_COUNT)
        return oriel_fail(ORIEL_ERR_INVALID, "attribute kind is %lld", (long long)attrs->kind);
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
        st = check_array("via", &attrs->via, 1, ORIEL_VIA_COUNT);
    if (st == ORIEL_OK)
        st = check_array("pairs", attrs->pairs, attrs->num_pairs, attrs->group_size);
    if (st == ORIEL_OK)
        st = check_array("groups", attrs->ranks, attrs->num_ranks, attrs->world);
    return st;
}

static void fill(oriel_site *site, const site_attrs *attrs)
{
    int *pairs = site->ranks + attrs->num_ranks;

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
    if (attrs->num_said > 0) {
        size_t bytes = (size_t)attrs->num_said * sizeof *attrs->said;

        memcpy(site->said, attrs->said, bytes < SAID_BYTES ? bytes : SAID_BYTES - 1);
    }
    site->op = (oriel_op){
        .kind = (enum oriel_kind)attrs->kind,
        .redop = (oriel_redop)attrs->reduce,
        .via = (oriel_via)attrs->via,
        .root = (int)attrs->root,
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
    for (size_t i = 0; i < rows; i++)
        site->rows[i] = (xla_replica_group){.ids = site->places + i * row, .size = row};
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
    if (site->ranks != NULL && site->values != NULL)
        site->family = family_join(call_hash(attrs->module, attrs->site), &site->copy);
    if (site->ranks == NULL || site->values == NULL || site->family == NULL) {
        oriel_site_destroy(site);
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a call site");
    }
    fill(site, attrs);
    st = fill_loan(site, attrs);
    if (st == ORIEL_OK)
        *site_p = site;
    else
        oriel_site_destroy(site);
    return st;
}

static void release_row(struct device *device)
{
    while (device != NULL) {
        struct device *next = device->next;

        oriel_sys_now->release(device);
        device = next;
    }
}

void oriel_site_destroy(void *object)
{
    oriel_site *site = object;

    if (site == NULL)
        return;
    if (site->family != NULL)
        family_leave(site->family);
    for (int i = 0; i < ROWS; i++)
        release_row(atomic_load(&site->devices[i]));
    pthread_mutex_destroy(&site->lock);
    oriel_sys_now->release(site->ranks);
    oriel_sys_now->release(site->values);
    oriel_sys_now->release(site->places);
    oriel_sys_now->release(site->rows);
    oriel_sys_now->release(site);
}

int64_t oriel_site_world(const oriel_site *site)
{
    return site->world;
}

const oriel_op *oriel_site_op(const oriel_site *site)
{
    return &site->op;
}

const oriel_kernel *oriel_site_kernel(const oriel_site *site)
{
    return site->kernel;
}

const int64_t *oriel_site_values(const oriel_site *site, int64_t *n_p)
{
    *n_p = site->num_values;
    return site->values;
}

const char *oriel_site_said(const oriel_site *site)
{
    return site->said;
}

const int *oriel_site_ranks(const oriel_site *site, int rank, int *n_p)
{
    for (int i = 0; i < site->num_ranks; i++) {
        if (site->ranks[i] == rank) {
            *n_p = site->group_size;
            return site->ranks + i / site->group_size * site->group_size;
        }
    }
    return NULL;
}

void oriel_site_capture(oriel_site *site, uint64_t world)
{
    atomic_store(&site->captured, world);
}

uint64_t oriel_site_captured(const oriel_site *site)
{
    return atomic_load(&site->captured);
}

const site_loan *oriel_site_loan(const oriel_site *site)
{
    return &site->loan;
}

static struct device *find_device(const oriel_site *site, int ordinal)
{
    struct device *device = atomic_load(&site->devices[(unsigned)ordinal % ROWS]);

    while (device != NULL && device->ordinal != ordinal)
        device = device->next;
    return device;
}

site_member *oriel_site_member(const oriel_site *site, int ordinal, uint64_t world)
{
    struct device *device = find_device(site, ordinal);

    return device != NULL && atomic_load(&device->world) == world ? &device->member : NULL;
}

/* Called with the lock held. */
static struct device *add_device(oriel_site *site, int ordinal)
{
    struct device *_Atomic *row = &site->devices[(unsigned)ordinal % ROWS];
    struct device *device = oriel_sys_now->alloc(sizeof *device);

    if (device == NULL)
        return NULL;
    device->ordinal = ordinal;
    device->next = atomic_load(row);
    atomic_store(row, device);
    return device;
}

oriel_status oriel_site_add_member(oriel_site *site, int ordinal, uint64_t world,
                                   oriel_group *group, int rank, site_member **member_p)
{
    struct device *device;

    pthread_mutex_lock(&site->lock);
    device = find_device(site, ordinal);
    if (device == NULL)
        device = add_device(site, ordinal);
    if (device != NULL && atomic_load(&device->world) != world) {
        device->member.group = group;
        device->member.rank = rank;
        device->member.index = oriel_group_index(group, rank);
        atomic_store(&device->member.loan, 0);
        device->member.met = 0;
        atomic_store(&device->world, world); /* others may read it from now on */
    }
    pthread_mutex_unlock(&site->lock);
    if (device == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a call site");
    *member_p = &device->member;
    return ORIEL_OK;
}

uint64_t oriel_site_call(const oriel_site *site)
{
    return site->family->call;
}

uint64_t oriel_site_identity(const oriel_site *site)
{
    return oriel_mix(site->family->call ^ ((uint64_t)site->copy << 1 | 1));
}

uint32_t oriel_site_instances(const oriel_site *site)
{
    struct family *family = site->family;

    if (!atomic_load_explicit(&family->closed, memory_order_acquire)) {
        pthread_mutex_lock(&families_lock);
        atomic_store(&family->closed, 1);
        pthread_mutex_unlock(&families_lock);
    }
    return family->instances;
}

static uint64_t count_run(struct device *device, int64_t run)
{
    struct run_count *oldest = &device->runs[0];

    device->tick++;
    for (uint32_t i = 0; i < RUNS; i++) {
        struct run_count *entry = &device->runs[i];
        if (entry->count > 0 && entry->run == run) {
            entry->used = device->tick;
            return entry->count++;
        }
        if (entry->used < oldest->used)
            oldest = entry;
    }
    *oldest = (struct run_count){.run = run, .count = 1, .used = device->tick};
    return 0;
}

uint64_t oriel_site_count(oriel_site *site, site_member *member, int64_t run)
{
    uint64_t count;

    pthread_mutex_lock(&site->lock);
    count = count_run((struct device *)(void *)member, run);
    pthread_mutex_unlock(&site->lock);
    return count;
}
