/* Messages in random orders, against what each should bring: for threads and for processes. */
#ifndef TESTS_SUPPORT_CALLS_MESSAGES_H
#define TESTS_SUPPORT_CALLS_MESSAGES_H

#include "oriel/oriel.h"

/* Every member of `group` calls these with the same `seed` and `most`, in bytes. */

/* Sends and receives are started in an order of each member's own, and end in another. */
void messages_started(oriel_group *group, int rank, unsigned seed, size_t most);
/* Blocking ones, which all members make in one order. */
void messages_blocking(oriel_group *group, int rank, unsigned seed, size_t most);
/* Everybody sends to another while it receives from a third. */
void messages_exchanged(oriel_group *group, int rank, unsigned seed, size_t most);

#endif
