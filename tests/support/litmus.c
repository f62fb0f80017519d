#include "kernels/litmus.cu"
#define PART 24
#include "kernels/machines.cu"
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
ENTRY(passing)
ENTRY(third_party)
ENTRY(barriers)
ENTRY(gets)

const struct litmus litmus_list[] = {
    {"message_passing", oriel_entry_message_passing},
    {"store_buffering", oriel_entry_store_buffering},
    {"signals", oriel_entry_signals},
    {"atomics", oriel_entry_atomics},
    {"team_sync", oriel_entry_team_sync},
    {"causality", oriel_entry_causality},
    {"passing", oriel_entry_passing},
    {"third_party", oriel_entry_third_party},
    {"barriers", oriel_entry_barriers},
    {"gets", oriel_entry_gets},
};
const int litmus_count = sizeof litmus_list / sizeof *litmus_list;
