/* Windows of all and of some ranks, of two comms at once, made, written, read, looked up and freed
 * in an order that is drawn:
 *
 *     random_windows [steps] [seed] [local ranks]
 *
 * All processes draw the same, so each knows who has made, written and freed what. A part is read
 * when it has not been written since the last barrier, also when its writer has freed the window.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "core/world/comm.h"
#include "support/check.h"
#include "support/process.h"
#include "support/resources.h"

enum { COMMS = 2, SLOTS = 120, MOST_RANKS = 16, EDGE = 3000, MOST_STEPS = 1000000 };

struct slot {
    int made;                     /* it is in use: some process may hold it */
    int comm;                     /* that it is of */
    int n;                        /* members ... */
    int ranks[MOST_RANKS];        /* ... in the group's order */
    size_t bytes;                 /* of each */
    unsigned version[MOST_RANKS]; /* by rank: of what it has written; 0: nothing */
    int fresh[MOST_RANKS];        /* by rank: it has written since the last barrier */
    int seen[MOST_RANKS];         /* by rank: others have read it since then */
    int freed[MOST_RANKS];        /* by process: it has let go */
    oriel_window *window;         /* NULL: this process does not hold it */
};

struct play {
    oriel_comm *comms[COMMS];
    struct slot slots[SLOTS];
    char seen[COMMS][MOST_STEPS]; /* by number: this process has made that window */
    uint64_t draws;
    uint64_t seed;
    int local_ranks;
    int me; /* process */
    int made;
};

static uint64_t draw(struct play *play, uint64_t below)
{
    return oriel_mix(play->seed ^ oriel_mix(++play->draws)) % below;
}

static int process_of(const struct play *play, int rank)
{
    return rank / play->local_ranks;
}

static unsigned char *part_of(const struct slot *slot, int rank)
{
    void *ptr = NULL;

    CHECK_OK(oriel_window_ptr(slot->window, rank, &ptr));
    return ptr;
}

static unsigned char byte_of(unsigned version, int rank, size_t i)
{
    return version == 0 ? 0 : (unsigned char)(version * 37 + (unsigned)rank * 11 + i % 251);
}

/* Of a large part, both ends alone are written. */
static size_t skip(const struct slot *slot, size_t i)
{
    return i == EDGE && slot->bytes > 2 * EDGE ? slot->bytes - EDGE : i;
}

static void fill(struct slot *slot, int rank)
{
    unsigned char *part = part_of(slot, rank);

    for (size_t i = 0; i < slot->bytes; i = skip(slot, i + 1))
        part[i] = byte_of(slot->version[rank], rank, i);
}

static void compare(const struct slot *slot, int rank)
{
    const unsigned char *part = part_of(slot, rank);

    for (size_t i = 0; i < slot->bytes; i = skip(slot, i + 1))
        CHECK(part[i] == byte_of(slot->version[rank], rank, i),
              "window %llu, byte %zu of %zu of rank %d is %d instead of %d (version %u)",
              (unsigned long long)oriel_window_number(slot->window), i, slot->bytes, rank, part[i],
              byte_of(slot->version[rank], rank, i), slot->version[rank]);
}

static int is_mine(const struct play *play, const struct slot *slot)
{
    for (int i = 0; i < slot->n; i++) {
        if (process_of(play, slot->ranks[i]) == play->me)
            return 1;
    }
    return 0;
}

/* All ranks or some, in an order of their own. */
static void choose_members(struct play *play, struct slot *slot)
{
    int size = oriel_comm_size(play->comms[0]);

    for (int r = 0; r < size; r++)
        slot->ranks[r] = r;
    slot->n = draw(play, 2) ? size : 1 + (int)draw(play, (uint64_t)size);
    for (int i = 0; i < slot->n; i++) {
        int k = i + (int)draw(play, (uint64_t)(size - i));
        int rank = slot->ranks[k];

        slot->ranks[k] = slot->ranks[i];
        slot->ranks[i] = rank;
    }
}

static void make(struct play *play, struct slot *slot)
{
    oriel_group *group = NULL;
    uint64_t number;

    memset(slot, 0, sizeof *slot);
    slot->comm = (int)draw(play, COMMS);
    choose_members(play, slot);
    slot->bytes = 1 + draw(play, 1ull << draw(play, 19));
    slot->made = 1;
    if (!is_mine(play, slot))
        return;
    CHECK_OK(oriel_group_create(play->comms[slot->comm], slot->ranks, slot->n, &group));
    CHECK_OK(oriel_window_create(group, slot->bytes, &slot->window));
    oriel_group_destroy(group);
    number = oriel_window_number(slot->window);
    CHECK(number > 0 && number < MOST_STEPS && !play->seen[slot->comm][number], "number %llu",
          (unsigned long long)number);
    play->seen[slot->comm][number] = 1;
    play->made++;
    for (int i = 0; i < slot->n; i++) {
        if (process_of(play, slot->ranks[i]) == play->me)
            compare(slot, slot->ranks[i]); /* nothing is written yet */
    }
}

static void write_some(struct play *play, struct slot *slot)
{
    for (int i = 0; i < slot->n; i++) {
        int rank = slot->ranks[i];
        int process = process_of(play, rank);

        if (draw(play, 2) || slot->freed[process] || slot->seen[rank])
            continue;
        slot->version[rank] = 1 + (unsigned)draw(play, 1000);
        slot->fresh[rank] = 1;
        if (process == play->me)
            fill(slot, rank);
    }
}

static void read_all(const struct play *play, struct slot *slot)
{
    for (int i = 0; i < slot->n; i++) {
        int rank = slot->ranks[i];

        slot->seen[rank] |= !slot->fresh[rank];
        if (slot->window != NULL && (!slot->fresh[rank] || process_of(play, rank) == play->me))
            compare(slot, rank);
    }
}

/* Those that are drawn let go; when all have, the slot is free. */
static void free_some(struct play *play, struct slot *slot)
{
    int left = 0;

    for (int i = 0; i < slot->n; i++) {
        int process = process_of(play, slot->ranks[i]);

        slot->freed[process] |= (int)draw(play, 2);
        if (process == play->me && slot->freed[process]) {
            oriel_window_free(slot->window);
            slot->window = NULL;
        }
    }
    for (int i = 0; i < slot->n; i++)
        left |= !slot->freed[process_of(play, slot->ranks[i])];
    slot->made = left;
}

static void meet(struct play *play)
{
    CHECK_OK(oriel_comm_barrier(play->comms[draw(play, COMMS)]));
    for (int k = 0; k < SLOTS; k++) {
        memset(play->slots[k].fresh, 0, sizeof play->slots[k].fresh);
        memset(play->slots[k].seen, 0, sizeof play->slots[k].seen);
    }
}

/* The one that has an address, by looking at all. */
static const struct slot *holder_of(const struct play *play, int comm, const unsigned char *addr,
                                    int *rank_p)
{
    for (int k = 0; k < SLOTS; k++) {
        const struct slot *slot = &play->slots[k];

        for (int i = 0; i < slot->n && slot->window != NULL && slot->comm == comm; i++) {
            const unsigned char *part = part_of(slot, slot->ranks[i]);

            *rank_p = slot->ranks[i];
            if (addr >= part && addr < part + slot->bytes)
                return slot;
        }
    }
    return NULL;
}

/* Somewhere around a part, which may be in a neighbour of it or in none. */
static void look_up(struct play *play, const struct slot *slot)
{
    int rank = slot->ranks[draw(play, (uint64_t)slot->n)];
    size_t offset = draw(play, slot->bytes + slot->bytes / 2 + 5000);

    for (int c = 0; slot->window != NULL && c < COMMS; c++) {
        const unsigned char *addr = part_of(slot, rank) + offset;
        int owner = -1;
        const struct slot *expected = holder_of(play, c, addr, &owner);
        oriel_window *found = NULL;
        size_t at = 0;
        int of = -1;
        oriel_status st = oriel_window_find(play->comms[c], addr, &found, &of, &at);

        CHECK((st == ORIEL_OK) == (expected != NULL), "%s", oriel_last_error());
        CHECK(expected == NULL ||
                  (found == expected->window && of == owner && part_of(expected, of) + at == addr),
              "byte %zu of rank %d", at, of);
    }
}

static void step(struct play *play)
{
    struct slot *slot = &play->slots[draw(play, SLOTS)];
    uint64_t what = draw(play, 16);

    if (!slot->made)
        make(play, slot);
    else if (what < 4)
        write_some(play, slot);
    else if (what < 8)
        read_all(play, slot);
    else if (what < 11)
        look_up(play, slot);
    else if (what < 15)
        free_some(play, slot);
    else
        meet(play);
}

/* When all is freed, no page is left. */
static void end(struct play *play)
{
    struct stat file;

    for (int k = 0; k < SLOTS; k++)
        oriel_window_free(play->slots[k].window);
    for (int c = 0; c < COMMS; c++) {
        CHECK_OK(oriel_comm_barrier(play->comms[c]));
        CHECK(fstat(play->comms[c]->arena.fd, &file) == 0, "no arena");
        CHECK(file.st_blocks == 0, "%lld blocks of windows are left", (long long)file.st_blocks);
    }
    for (int c = 0; c < COMMS; c++)
        CHECK_OK(oriel_comm_destroy(play->comms[c]));
}

int main(int argc, char **argv)
{
    static struct play play;
    test_resources before = resources_now();
    int steps = process_argument(argc, argv, 1, 1000);

    play.seed = (uint64_t)process_argument(argc, argv, 2, 1);
    play.local_ranks = process_argument(argc, argv, 3, 1);
    play.comms[0] = process_comm(play.local_ranks, 60.0, "first");
    play.comms[1] = process_comm(play.local_ranks, 60.0, "second");
    play.me = oriel_comm_process(play.comms[0]);
    CHECK(oriel_comm_size(play.comms[0]) <= MOST_RANKS && steps < MOST_STEPS, "too many");
    for (int i = 0; i < steps; i++)
        step(&play);
    end(&play);
    resources_check(before, "at the end");
    printf("%d windows\n", play.made);
    return 0;
}
