/* Groups of a comm that are not made by a person's call; struct oriel_group is in comm.h. */
#ifndef ORIEL_CORE_PROTOCOL_GROUP_H
#define ORIEL_CORE_PROTOCOL_GROUP_H

#include "core/world/comm.h"

/* A group shared by all callers that name the same ranks; owned by the comm. */
oriel_status oriel_group_intern(oriel_comm *comm, const int *ranks, int n, oriel_group **group_p);
void oriel_groups_free(oriel_comm *comm);
/* The group of two in which messages from member `from` to member `to` meet, for `rank`, which is
 * one of them, and its thread alone. Each direction has an order of its own. It goes with `group`.
 */
oriel_status oriel_group_pair(oriel_group *group, int rank, int from, int to, oriel_group **pair_p);

#endif
