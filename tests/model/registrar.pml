/* Buffers that other processes map, as in src/core/device/register.c: an address whose memory is
 * replaced between calls, the windows through which a peer reaches it, and a graph that
 * was captured when it meant something else. One process shows, one maps; calls never
 * wait for either. A call that goes direct must reach the memory that the address means
 * now. */

#ifndef CALLS
#define CALLS 3
#endif
#ifndef WINDOWS
#define WINDOWS 2
#endif

bit graph;              /* calls have the argument that the first was captured with */
bit other;              /* the second call is on another address, and no graph's */
byte remaps;            /* how often the memory may be replaced */

#include "rules.pml"

#define READY_WHEN_MAPPED       1
#define STALE_IS_MARKED         2
#define STALE_HAS_ITS_WORD      3
#define STALE_STATES_ARE_MARKED 4
#define GENERATIONS_ARE_NEW     5
#define CLEARED_BEFORE_TOLD     6
#define FREE_WHEN_ALL_KNOW      7

#define NONE 255

#define FREE      0
#define WANTED    1
#define SHOWN     2
#define READY     3
#define STALE     4
#define WITHDRAWN 5
#define KNOWN(s) (s == WANTED || s == SHOWN || s == READY)

byte memory[2];         /* what the addresses mean; ids are never used again */

typedef Window {
    /* of the process whose memory it is */
    byte state;
    byte generation;
    bit at;             /* which address, and ... */
    byte id;            /* ... its memory */
    byte handle;        /* what its descriptor means */
    /* in the heap in host memory */
    byte shown;         /* its generation; odd: to be mapped, even: withdrawn */
    bit mapped;
    bit released;
    /* the words of its device */
    byte ready;
    byte stale;
    /* of the other process */
    byte seen;
    byte imported;      /* the memory it has mapped; 0: none */
    byte address;       /* ... as its device knows it */
}

Window w[WINDOWS];

/* ---- the calling thread ------------------------------------------------------------- */

/* find_export(): leaves `found`. What is stale is so for all that follows on the stream. */
inline find_export()
{
    i = 0;
    do
    :: atomic {
           i < WINDOWS ->
           state = w[i].state;
           if
           :: KNOWN(state) && w[i].at == at && w[i].id == memory[at] -> found = i; i++; state = 0
           :: w[i].at == at && (KNOWN(state) && w[i].id != memory[at] ||
                                state == STALE && KEEPS(STALE_STATES_ARE_MARKED)) -> skip
           :: else -> i++; state = 0
           fi
       };
       if
       :: state != 0 ->
          d_step {
              if
              :: w[i].state == state -> w[i].state = STALE
              :: else
              fi
          };
          d_step {
              if
              :: KEEPS(STALE_IS_MARKED) && KEEPS(STALE_HAS_ITS_WORD) ->
                 w[i].stale = w[i].generation
              :: KEEPS(STALE_IS_MARKED) && !KEEPS(STALE_HAS_ITS_WORD) -> w[i].ready = 0
              :: else
              fi;
              i++; state = 0
          }
       :: else
       fi
    :: atomic { i >= WINDOWS -> i = 0; break }
    od
}

inline add_export()
{
    atomic {
        for (i : 0 .. WINDOWS - 1) {
            if
            :: found == NONE && w[i].state == FREE ->
               found = i;
               w[i].at = at;
               w[i].id = memory[at];
               w[i].generation =
                   (w[i].generation == 0 -> 1 :
                    (KEEPS(GENERATIONS_ARE_NEW) -> w[i].generation + 2 : w[i].generation));
               w[i].state = WANTED
            :: else
            fi
        }
        i = 0
    }
}

/* The kernel: reads its two words, then the peer reads the address and touches. */
inline run_kernel()
{
    if
    :: arg != NONE && w[arg].ready == arg_generation ->
       if
       :: w[arg].stale != arg_generation ->
          there = w[arg].address;
          assert(there == memory[at] && w[arg].imported == there); /* g_wrong memory */
          there = 0
       :: else
       fi
    :: else
    fi
}

proctype caller()
{
    byte i, state, there, arg_generation, old_generation, call;
    byte arg = NONE, old_arg = NONE, found = NONE;
    bit at;

    for (call : 1 .. CALLS) {
        if /* the memory is freed, and other memory mapped in its place */
        :: skip
        :: d_step { call > 1 && remaps > 0 -> memory[0]++; remaps-- }
        fi;
        at = other && call == 2;
        find_export();
        if
        :: found == NONE -> add_export()
        :: else
        fi;
        atomic {
            arg = (graph && call > 1 && !at -> old_arg : found);
            arg_generation = (graph && call > 1 && !at -> old_generation :
                              (arg == NONE -> 0 : w[arg].generation));
            if
            :: call == 1 -> old_arg = arg; old_generation = arg_generation
            :: else
            fi;
            found = NONE
        };
        run_kernel()
    }
}

/* ---- the registrars ----------------------------------------------------------------- */

/* Whether the memory is still the same is asked now and then. */
inline sweep(k)
{
    d_step {
        if
        :: w[k].state == at -> w[k].state = STALE
        :: else
        fi;
        at = 0
    }
}

inline publish(k)
{
    w[k].handle = memory[w[k].at];
    d_step { w[k].mapped = 0; w[k].released = 0 };
    w[k].state = SHOWN;
    w[k].shown = w[k].generation
}

inline raise(k)
{
    w[k].ready = w[k].generation;
    d_step {
        if
        :: w[k].state == SHOWN -> w[k].state = READY
        :: else
        fi
    }
}

inline withdraw(k)
{
    if
    :: atomic { w[k].state == STALE && w[k].shown != w[k].generation -> w[k].state = FREE }
    :: atomic { w[k].state == STALE && w[k].shown == w[k].generation -> skip };
       if
       :: KEEPS(CLEARED_BEFORE_TOLD) -> w[k].ready = 0
       :: else
       fi;
       w[k].state = WITHDRAWN;
       w[k].shown = w[k].generation + 1;
       if
       :: KEEPS(CLEARED_BEFORE_TOLD)
       :: else -> w[k].ready = 0
       fi
    :: atomic { w[k].state == WITHDRAWN && (w[k].released || !KEEPS(FREE_WHEN_ALL_KNOW)) ->
                w[k].state = FREE }
    fi
}

#define CAN_SHOW(k)     (w[k].state == WANTED)
#define CAN_RAISE(k)    (w[k].state == SHOWN && (w[k].mapped || !KEEPS(READY_WHEN_MAPPED)))
#define CAN_WITHDRAW(k) (w[k].state == STALE || w[k].state == WITHDRAWN && \
                         (w[k].released || !KEEPS(FREE_WHEN_ALL_KNOW)))
#define CAN_SWEEP(k)    (KNOWN(w[k].state) && w[k].id != memory[w[k].at])

proctype shower()
{
    byte k, at;

end:
    do
    :: atomic { CAN_SHOW(0) -> k = 0 }; publish(k)
    :: atomic { CAN_SHOW(WINDOWS - 1) -> k = WINDOWS - 1 }; publish(k)
    :: atomic { CAN_RAISE(0) -> k = 0 }; raise(k)
    :: atomic { CAN_RAISE(WINDOWS - 1) -> k = WINDOWS - 1 }; raise(k)
    :: atomic { CAN_WITHDRAW(0) -> k = 0 }; withdraw(k)
    :: atomic { CAN_WITHDRAW(WINDOWS - 1) -> k = WINDOWS - 1 }; withdraw(k)
    :: atomic { CAN_SWEEP(0) -> k = 0; at = w[k].state }; sweep(k)
    :: atomic { CAN_SWEEP(WINDOWS - 1) -> k = WINDOWS - 1; at = w[k].state }; sweep(k)
    od
}

/* The other process. */
inline import(k)
{
    d_step { w[k].seen = w[k].shown; w[k].address = 0 };
    w[k].imported = 0;
    if
    :: atomic { w[k].seen % 2 == 0 -> w[k].released = 1 }
    :: atomic { w[k].seen % 2 == 1 && (w[k].state == SHOWN || w[k].state == READY) ->
                w[k].imported = w[k].handle };
       w[k].address = w[k].imported;
       w[k].mapped = 1
    :: else /* there is no descriptor any more */
    fi
}

proctype mapper()
{
    byte k;

end:
    do
    :: atomic { w[0].seen != w[0].shown -> k = 0 }; import(k)
    :: atomic { w[WINDOWS - 1].seen != w[WINDOWS - 1].shown -> k = WINDOWS - 1 }; import(k)
    od
}

init
{
    atomic {
        choose_rules();
        c_code {
            now.graph = getenv("GRAPH") != 0;
            now.other = getenv("OTHER") != 0;
            now.remaps = getenv("REMAPS") ? atoi(getenv("REMAPS")) : 1;
        };
        memory[0] = 1;
        memory[1] = 10;
        run caller();
        run shower();
        run mapper()
    }
}
