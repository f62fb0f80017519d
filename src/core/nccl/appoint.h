/* Appointments: how the members of a group, in the middle of calls that wait for nobody, come to
 * do something together that blocks until all do it, such as registering memory with NCCL.
 *
 * Every member counts its calls of the group; members make the same calls in the same order. A
 * member that wants something says so. A member that finds that enough do makes an appointment: the
 * call after the last that any member has begun, which so nobody has passed. In that call, and
 * in no other, members wait for each other, with a deadline. By then each has begun all earlier
 * calls, so that what they have on their streams ends by itself.
 *
 * A member that waits for the others leaves again when the comm is revoked, its time is up or
 * appointments are off, unless it finds that all have come: then all go on. */
#ifndef ORIEL_CORE_NCCL_APPOINT_H
#define ORIEL_CORE_NCCL_APPOINT_H

#include "core/nccl/sections.h"
#include "core/world/comm.h"

/* Local: the place in the heap where the group's members count, the same on all; -1: there are
 * too many groups. */
int oriel_appoint_find(const oriel_heap *heap, uint64_t group);

typedef struct oriel_appointed {
    oriel_group *group; /* whose members meet */
    int rank;           /* of this member */
    int place;          /* that oriel_appoint_find gave */
    int alone;          /* an appointment is made when one wants it; otherwise all must */
    double patience;    /* seconds; less than the comm's deadline: then it is called off */
} oriel_appointed;

/* Local and short: this member begins a call, and wants so many things. `due_p`: the members
 * meet in it. Fails where the comm is revoked. */
oriel_status oriel_appoint_call(const oriel_appointed *a, uint32_t wants, int *due_p);
/* In a call that is due, when what the member brings is written: waits for all. Fails with what
 * revoked the comm, or revokes it when the comm's deadline is over; where patience ends before
 * that it calls appointments off. `all_p`: all are there, and
 * each calls oriel_appoint_leave when it has read what it needs. Not so: it was called off. */
oriel_status oriel_appoint_meet(const oriel_appointed *a, int *all_p);
void oriel_appoint_leave(const oriel_appointed *a);
/* Local: there will be none any more; members that wait stop. */
void oriel_appoint_call_off(const oriel_appointed *a);
int oriel_appoint_is_off(const oriel_heap *heap, int place);

static inline heap_attendance *oriel_attendance(const oriel_appointed *a, int member)
{
    return oriel_attendance_of(&a->group->comm->heap, a->group->ranks[member], a->place);
}

#endif
