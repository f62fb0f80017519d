/* The one place that decides how an operation goes: its mode, and whether it stores past the
 * caches. It follows from facts that are known at set-up and are the same on all members, so
 * that they choose alike without a word, and a person can say beforehand what a call will do:
 * `oriel info --choices` prints it for this machine. */
#ifndef ORIEL_OPS_CHOOSE_H
#define ORIEL_OPS_CHOOSE_H

#include "core/protocol/cell.h"

/* Where the members of a call can meet. */
enum oriel_meeting {
    MEET_CELL,  /* in a cell alone: calls from XLA, and groups without a lane */
    MEET_LANE,  /* in the group's lane: ordered calls, from C */
    MEET_SHOWN, /* they have met there, and what they bring does not fit: now in a cell */
};

typedef struct oriel_question {
    enum oriel_kind kind;       /* which operation */
    enum oriel_meeting meeting; /* where its members are now */
    size_t block;   /* bytes of one block; of ragged_all_to_all what goes to a member on average */
    int arrays;     /* of a list; 0 or 1: one */
    size_t payload; /* bytes that a member shows to others, in MEET_LANE; of ragged_all_to_all the
                     * numbers of rows */
} oriel_question;

typedef struct oriel_choice {
    enum oriel_mode mode; /* how the data moves */
    int stream;           /* what others read is stored past the caches */
    const char *why;      /* the reason for the mode, in words */
} oriel_choice;

oriel_choice oriel_choose(const oriel_facts *facts, const oriel_question *question);
/* Payloads up to so many bytes go by the lane, stored as usual, whatever the operation: what the
 * table says, looked up once for all small calls. */
size_t oriel_choose_small(const oriel_facts *facts);
/* Whether what others read of so many bytes is stored past the caches. */
int oriel_choose_stream(const oriel_facts *facts, enum oriel_kind kind, size_t bytes);
/* Bytes of rows that the lane takes from each member of a ragged_all_to_all. */
size_t oriel_choose_rows(const oriel_facts *facts);

const char *oriel_mode_name(enum oriel_mode mode);

#endif
