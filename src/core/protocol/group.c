/* Groups are formed without exchange: all members compute the same hash from the
 * same list. A second group over the same list is a second instance, so that its
 * calls do not mix with the first one's. */
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/hash.h"
#include "core/protocol/group.h"
#include "core/protocol/cell.h"
#include "core/protocol/lane.h"

static oriel_status check_ranks(const oriel_comm *comm, const int *ranks, int n)
{
    unsigned char seen[HEAP_MAX_RANKS] = {0};

    if (comm == NULL || ranks == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "%s is NULL", comm == NULL ? "comm" : "ranks");
    if (n < 1 || n > comm->size)
        return oriel_fail(ORIEL_ERR_INVALID, "a group of %d ranks in a world of %d", n, comm->size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->size)
            return oriel_fail(ORIEL_ERR_INVALID, "ranks[%d] is %d in a world of %d", i, ranks[i],
                              comm->size);
        if (seen[ranks[i]]++)
            return oriel_fail(ORIEL_ERR_INVALID, "rank %d is in the group twice", ranks[i]);
    }
    return ORIEL_OK;
}

/* How many pairs a rank may have in a group: with each member, in both directions. */
static int pairs_of(const oriel_group *group)
{
    return 2 * group->n;
}

/* Calls `end` for all pairs of a group. */
static void end_pairs(oriel_group *group, void (*end)(oriel_group *pair))
{
    for (int k = 0; group->pairs != NULL && k < group->comm->local_ranks; k++) {
        for (int i = 0; group->pairs[k] != NULL && i < pairs_of(group); i++) {
            if (group->pairs[k][i] != NULL)
                end(group->pairs[k][i]);
        }
    }
}

static void group_free(oriel_group *group)
{
    if (group == NULL)
        return;
    end_pairs(group, group_free);
    for (int k = 0; group->pairs != NULL && k < group->comm->local_ranks; k++)
        oriel_sys_now->release(group->pairs[k]);
    oriel_sys_now->release(group->pairs);
    oriel_sys_now->release(group->ranks);
    oriel_sys_now->release(group->procs);
    oriel_sys_now->release(group->sequence);
    oriel_sys_now->release(group->members);
    oriel_sys_now->release(group);
}

static int machine_of(const oriel_group *group, int index)
{
    const oriel_heap *heap = &group->comm->heap;

    return heap->procs[heap->ranks[group->ranks[index]].process].machine;
}

static int members_of_each(const oriel_group *group)
{
    int each = 1;

    while (each < group->n && machine_of(group, each) == machine_of(group, 0))
        each++;
    if (group->n % each != 0)
        return 1;
    for (int i = each; i < group->n; i++) {
        int first = i / each * each;

        if (machine_of(group, i) != machine_of(group, first))
            return 1;
        for (int k = 0; i == first && k < first; k += each) {
            if (machine_of(group, k) == machine_of(group, i))
                return 1;
        }
    }
    return each;
}

static void find_procs(oriel_group *group)
{
    const oriel_comm *comm = group->comm;

    for (int i = 0; i < group->n; i++) {
        int process = comm->heap.ranks[group->ranks[i]].process;
        int known = 0;
        for (int k = 0; k < group->num_procs; k++)
            known |= group->procs[k] == process;
        if (!known)
            group->procs[group->num_procs++] = process;
    }
    for (int k = 0; k < group->num_procs; k++)
        group->spans |=
            comm->heap.procs[group->procs[k]].machine != comm->heap.procs[group->procs[0]].machine;
    group->each = members_of_each(group);
    group->one_process = group->num_procs == 1 && group->procs[0] == comm->process;
}

static void find_members(oriel_group *group)
{
    const oriel_comm *comm = group->comm;

    for (int k = 0; k < comm->local_ranks; k++)
        group->members[k].index = oriel_group_index(group, comm->first_rank + k);
}

static oriel_facts facts_of(const oriel_group *group)
{
    const oriel_comm *comm = group->comm;

    return (oriel_facts){
        .n = group->n,
        .one_process = group->one_process && comm->heap.header->direct,
        .reads = oriel_group_reads(group),
        .crowded = comm->oversubscribed,
        .apart = comm->apart,
        .place = oriel_lane_room_for(&comm->heap, group->n),
        .eager = oriel_heap_eager_bytes(&comm->heap, group->n),
        .cache = comm->cache,
    };
}

static oriel_group *group_new(oriel_comm *comm, const int *ranks, int n)
{
    oriel_group *group = oriel_sys_now->alloc(sizeof *group);

    if (group == NULL)
        return NULL;
    group->comm = comm;
    group->n = n;
    group->ranks = oriel_sys_now->alloc((size_t)n * sizeof *ranks);
    group->procs = oriel_sys_now->alloc((size_t)n * sizeof *ranks);
    group->sequence = oriel_sys_now->alloc((size_t)comm->local_ranks * sizeof *group->sequence);
    group->members = oriel_sys_now->alloc((size_t)comm->local_ranks * sizeof *group->members);
    group->pairs = oriel_sys_now->alloc((size_t)comm->local_ranks * sizeof *group->pairs);
    if (group->ranks == NULL || group->procs == NULL || group->sequence == NULL ||
        group->members == NULL || group->pairs == NULL) {
        group_free(group);
        return NULL;
    }
    memcpy(group->ranks, ranks, (size_t)n * sizeof *ranks);
    find_procs(group);
    find_members(group);
    group->facts = facts_of(group);
    return group;
}

/* How many groups over this list there were so far: counted for the comm's life,
 * since a late call of a destroyed group must not meet a new one. */
static oriel_status next_instance(oriel_comm *comm, uint64_t list, uint64_t *instance_p)
{
    oriel_group_list *entry = comm->group_lists;

    while (entry != NULL && entry->list != list)
        entry = entry->next;
    if (entry == NULL) {
        entry = oriel_sys_now->alloc(sizeof *entry);
        if (entry == NULL)
            return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a group");
        entry->list = list;
        entry->next = comm->group_lists;
        comm->group_lists = entry;
    }
    *instance_p = entry->instances++;
    return ORIEL_OK;
}

static oriel_status group_add(oriel_comm *comm, const int *ranks, int n, int owned,
                              oriel_group **group_p)
{
    uint64_t list = oriel_hash(ranks, (size_t)n * sizeof *ranks, 0);
    oriel_group *group = group_new(comm, ranks, n);
    uint64_t instance = 0;
    oriel_status st;

    if (group == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for a group of %d ranks", n);
    /* An interned group is instance 0 of its own series. */
    st = owned ? ORIEL_OK : next_instance(comm, list, &instance);
    if (st != ORIEL_OK) {
        group_free(group);
        return st;
    }
    group->owned = owned;
    group->hash = oriel_mix(list ^ (owned ? 0 : instance + 1));
    group->next = comm->groups;
    comm->groups = group;
    *group_p = group;
    return ORIEL_OK;
}

oriel_status oriel_group_create(oriel_comm *comm, const int *ranks, int n, oriel_group **group_p)
{
    oriel_status st = check_ranks(comm, ranks, n);

    if (st != ORIEL_OK)
        return st;
    if (group_p == NULL)
        return oriel_fail(ORIEL_ERR_INVALID, "group_p is NULL");
    pthread_mutex_lock(&comm->lock);
    st = group_add(comm, ranks, n, 0, group_p);
    pthread_mutex_unlock(&comm->lock);
    return st;
}

oriel_status oriel_group_intern(oriel_comm *comm, const int *ranks, int n, oriel_group **group_p)
{
    oriel_status st = check_ranks(comm, ranks, n);
    oriel_group *group;

    if (st != ORIEL_OK)
        return st;
    pthread_mutex_lock(&comm->lock);
    for (group = comm->groups; group != NULL; group = group->next) {
        if (group->owned && group->n == n &&
            memcmp(group->ranks, ranks, (size_t)n * sizeof *ranks) == 0)
            break;
    }
    if (group != NULL)
        *group_p = group;
    else
        st = group_add(comm, ranks, n, 1, group_p);
    pthread_mutex_unlock(&comm->lock);
    return st;
}

oriel_status oriel_group_pair(oriel_group *group, int rank, int from, int to, oriel_group **pair_p)
{
    oriel_comm *comm = group->comm;
    const int ranks[] = {group->ranks[from], group->ranks[to]};
    oriel_group ***mine = &group->pairs[rank - comm->first_rank];
    oriel_group **pair;

    if (*mine == NULL)
        *mine = oriel_sys_now->alloc((size_t)pairs_of(group) * sizeof **mine);
    if (*mine == NULL)
        return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for the messages of a group");
    pair = *mine + (group->ranks[from] == rank ? to : group->n + from);
    if (*pair == NULL) {
        *pair = group_new(comm, ranks, 2);
        if (*pair == NULL)
            return oriel_fail(ORIEL_ERR_SYSTEM, "out of memory for the messages of a group");
        (*pair)->hash = oriel_mix(group->hash ^ oriel_hash(ranks, sizeof ranks, 0));
    }
    *pair_p = *pair;
    return ORIEL_OK;
}

/* The lanes that this process's members have. A forked child keeps them: its parent is still a
 * member. */
static void leave_lanes(oriel_group *group)
{
    end_pairs(group, leave_lanes);
    for (int k = 0; k < group->comm->local_ranks && group->comm->pid == getpid(); k++)
        oriel_lane_leave(&group->members[k], &group->comm->heap);
}

void oriel_group_destroy(oriel_group *group)
{
    oriel_group **link;

    if (group == NULL || group->owned)
        return;
    pthread_mutex_lock(&group->comm->lock);
    for (link = &group->comm->groups; *link != group; link = &(*link)->next) {
    }
    *link = group->next;
    pthread_mutex_unlock(&group->comm->lock);
    leave_lanes(group);
    group_free(group);
}

void oriel_groups_free(oriel_comm *comm)
{
    while (comm->group_lists != NULL) {
        oriel_group_list *entry = comm->group_lists;
        comm->group_lists = entry->next;
        oriel_sys_now->release(entry);
    }
    while (comm->groups != NULL) {
        oriel_group *group = comm->groups;
        comm->groups = group->next;
        group_free(group);
    }
}

oriel_group *oriel_comm_world(oriel_comm *comm)
{
    return comm ? comm->world : NULL;
}

int oriel_group_size(const oriel_group *group)
{
    return group ? group->n : 0;
}

int oriel_group_index(const oriel_group *group, int rank)
{
    for (int i = 0; group != NULL && i < group->n; i++) {
        if (group->ranks[i] == rank)
            return i;
    }
    return -1;
}
