/* Whether what this process waits for at start and end is to be given up: a person has pressed
 * Ctrl-C, say. Waits of init and finalize look at it often, where they can ten times a second;
 * operations do not. */
#ifndef ORIEL_BASE_INTERRUPT_H
#define ORIEL_BASE_INTERRUPT_H

#include "base/status.h"

/* How long such a wait sleeps at most between two looks. */
#define INTERRUPT_LOOK_S 0.1

/* Local, from any thread: why such waits end; NULL: they go on, since all that waited has come
 * back. */
ORIEL_API void oriel_interrupt(const char *why);
int oriel_interrupted(void);
/* Fails with the reason. */
oriel_status oriel_interrupt_fail(void);

#endif
