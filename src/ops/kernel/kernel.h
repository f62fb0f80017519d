/* A person's kernel as an operation: all ranks of a group meet in a cell, each with its
 * operands and results where the others can reach them; then each runs the kernel with
 * a team of threads; when it has ended on all, the results are there. See
 * docs/kernels.md for what is promised to the kernel. */
#ifndef ORIEL_OPS_KERNEL_KERNEL_H
#define ORIEL_OPS_KERNEL_KERNEL_H

#include "base/types.h"
#include "core/memory/arena.h"
#include "core/memory/window.h"
#include "oriel/detail/kernel_types.h"
#include "ops/kernel/crew.h"
#include "ops/host/request.h"

/* The entry that ORIEL_ENTRY makes. */
typedef void (*oriel_kernel_entry)(oriel_team *team);

/* A person's host function: see oriel/op.h. */
struct oriel_call;
typedef oriel_status (*oriel_op_function)(struct oriel_call *call);

enum { KERNEL_MAX_BUFFERS = 64, KERNEL_MAX_ATTRIBUTES = 64, KERNEL_DIMS = 8, KERNEL_TEXT = 256 };

typedef struct oriel_kernel {
    uint64_t hash;                    /* of its source and its name; equal on all processes */
    char name[64];                    /* of the function, for errors and traces */
    _Atomic oriel_kernel_entry entry; /* loaded again, it may change under a call */
    _Atomic oriel_op_function op;     /* NULL: it is a kernel */
    struct oriel_kernel *next;        /* NULL: the last that is known */
} oriel_kernel;

/* Local: makes a kernel known to this process, for good. The same hash again replaces
 * the entry. */
oriel_status oriel_kernel_register(uint64_t hash, const char *name, oriel_kernel_entry entry);
oriel_status oriel_host_op_register(uint64_t hash, const char *name, oriel_op_function op);
/* NULL: unknown. */
const oriel_kernel *oriel_kernel_find(uint64_t hash);

/* An operand or a result as the caller has it. */
typedef struct kernel_buffer {
    void *data;                /* the caller's; on a GPU a device address */
    size_t count;              /* elements */
    oriel_dtype dtype;         /* of them */
    int in_window;             /* between processes: it is used where it lies ... */
    size_t at;                 /* ... there in the rank's part of the arena, else in the area */
    int ndim;                  /* host functions alone */
    int64_t dims[KERNEL_DIMS]; /* likewise; the first `ndim` are set */
} kernel_buffer;

static inline size_t oriel_kernel_bytes(const kernel_buffer *buffer)
{
    return buffer->count << oriel_dtype_shift(buffer->dtype);
}

typedef struct kernel_thread {
    crew_task task;                 /* first: the crew hands it back */
    oriel_team team;                /* what the kernel gets */
    struct oriel_kernel_call *call; /* whose thread it is */
} kernel_thread;

typedef struct oriel_kernel_call {
    oriel_custom custom;           /* first: see op.h */
    const oriel_kernel *kernel;    /* what runs */
    oriel_crew *crew;              /* CPUs: its threads run it */
    int num_operands, num_buffers; /* then results; num_buffers is both */
    int64_t num_values;            /* words of frame.values */
    const char *said;              /* the attributes in words; NULL or "": none */
    kernel_buffer *buffers;        /* operands, then results */
    oriel_board *board;            /* within one process */

    oriel_comm *comm;         /* of the group */
    const oriel_group *group; /* whose members run it */
    heap_cell *cell;          /* where they meet */
    heap_member *member;      /* this rank's in the cell */
    oriel_area area;          /* between processes */
    oriel_frame frame;        /* what the kernel gets */
    oriel_buffer *reach;      /* what the frame points to ... */
    void **peers;             /* [num_buffers][n] */
    oriel_board **boards;     /* [n] */

    int started, counted, complained; /* each 0 or 1: threads run; this rank is counted as done; a
                                         warning is logged */
    double jitter;                    /* seconds */
    int num_threads;                  /* of the team */
    kernel_thread *threads;           /* so many */
    _Atomic uint32_t running;         /* threads */
    _Atomic uint32_t ended;           /* all have: the call may go */
    _Atomic uint32_t sync_arrived, sync_round, sync_sleepers; /* see team.c */
    _Atomic uint32_t trouble;                                 /* ORIEL_TROUBLE_..., the first */
    _Atomic int64_t trouble_value;                            /* what was wrong: a rank, a signal */
    double deadline;                                          /* by oriel_now */
    oriel_status status;                                      /* of a host function ... */
    char error[KERNEL_TEXT];                                  /* ... and what it said */
} oriel_kernel_call;

/* Local: a call of a group of `n`. The caller fills `buffers`, then calls
 * oriel_kernel_call_identify. `values` must stay until the outcome. */
oriel_status oriel_kernel_call_create(const oriel_kernel *kernel, oriel_crew *crew, int n,
                                      int num_operands, int num_results, const int64_t *values,
                                      int64_t num_values, oriel_kernel_call **call_p);
void oriel_kernel_call_identify(oriel_kernel_call *call, const oriel_heap *heap);
/* NULL is fine. */
void oriel_kernel_call_destroy(oriel_kernel_call *call);

/* ---- team.c ------------------------------------------------------------------------ */

extern const oriel_team_calls oriel_team_calls_host;

/* ---- host_op.c -------------------------------------------------------------------- */

/* The entry of all host functions. */
void oriel_host_op_run(oriel_team *team);

#endif
