/* Apart from the launcher: a kernel's file knows oriel/kernel.h alone. */
#include "kernels/litmus.cu"
#include "support/litmus.h"

#define ENTRY(name)                                                                                \
    ORIEL_ENTRY(name,                                                                              \
                name(team, ORIEL_ARG_BUFFER(const int64_t *, 0), ORIEL_ARG_BUFFER(int64_t *, 1),   \
                     ORIEL_ARG_BUFFER(int64_t *, 2), ORIEL_ARG_INTEGER(int64_t, 0)))

ENTRY(message_passing)
ENTRY(store_buffering)
ENTRY(signals)
ENTRY(atomics)
ENTRY(team_sync)
ENTRY(causality)

const struct litmus litmus_list[] = {
    {"message_passing", oriel_entry_message_passing},
    {"store_buffering", oriel_entry_store_buffering},
    {"signals", oriel_entry_signals},
    {"atomics", oriel_entry_atomics},
    {"team_sync", oriel_entry_team_sync},
    {"causality", oriel_entry_causality},
};
const int litmus_count = sizeof litmus_list / sizeof *litmus_list;

size_t litmus_floats(oriel_team *team, const float *p)
{
    return oriel_count(team, p);
}
