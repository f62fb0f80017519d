/* Heat flows along a rod whose ends are held at 0 and 1, until nothing changes any
 * more. Every rank has a piece of the rod; neighbours exchange the cells where their
 * pieces touch, and all agree on the largest change.
 *
 *     oriel run -n 4 -- ./heat [cells] [largest change at the end]
 */
#include <math.h>
#include <oriel/oriel.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOK_EVERY = 50, MOST_STEPS = 10 * 1000 * 1000 };

/* A piece of the rod: `cells` of this rank's own, and at both sides one more, which
 * is the neighbour's or the end of the rod. */
typedef struct piece {
    int first, cells, total; /* where it lies in the rod, and the rod's length */
    double *now, *next;      /* cells + 2 each */
} piece;

/* Which member sends to which, as positions in the group: all to the right, all to the left. */
typedef struct neighbours {
    int count;
    int *right, *left;
} neighbours;

static double update(const double *u)
{
    return u[0] + 0.4 * (u[-1] - 2.0 * u[0] + u[1]);
}

/* The cells at the edges of the piece travel while the others are updated. */
static oriel_status step(oriel_group *world, int rank, const neighbours *to, piece *p)
{
    oriel_request *right, *left;
    double *swap = p->now;
    oriel_status st;

    st = oriel_permute_start(world, rank, &p->now[p->cells], &p->now[0], 1, ORIEL_F64, to->right,
                             to->count, &right);
    if (st == ORIEL_OK)
        st = oriel_permute_start(world, rank, &p->now[1], &p->now[p->cells + 1], 1, ORIEL_F64,
                                 to->left, to->count, &left);
    if (st != ORIEL_OK)
        return st;
    for (int i = 2; i < p->cells; i++)
        p->next[i] = update(&p->now[i]);
    st = oriel_request_wait(right);
    if (st == ORIEL_OK)
        st = oriel_request_wait(left);
    if (st != ORIEL_OK)
        return st;
    /* A rank that has no neighbour there got a zero: right for one end, not for the other. */
    if (p->first + p->cells == p->total)
        p->now[p->cells + 1] = 1.0;
    p->next[1] = update(&p->now[1]);
    p->next[p->cells] = update(&p->now[p->cells]);
    p->now = p->next;
    p->next = swap;
    return ORIEL_OK;
}

static double largest_change(const piece *p)
{
    double most = 0.0;

    for (int i = 1; i <= p->cells; i++)
        most = fmax(most, fabs(p->now[i] - p->next[i]));
    return most;
}

/* In the end the temperature is a straight line. */
static double largest_error(const piece *p)
{
    double most = 0.0;

    for (int i = 1; i <= p->cells; i++)
        most = fmax(most, fabs(p->now[i] - (double)(p->first + i) / (p->total + 1)));
    return most;
}

static oriel_status solve(oriel_comm *comm, const neighbours *to, piece *p, double tolerance)
{
    oriel_group *world = oriel_comm_world(comm);
    int rank = oriel_comm_first_rank(comm);
    double change = INFINITY;
    double error;
    oriel_status st = ORIEL_OK;
    int steps = 0;

    while (st == ORIEL_OK && change > tolerance && steps < MOST_STEPS) {
        st = step(world, rank, to, p);
        steps++;
        if (st == ORIEL_OK && steps % LOOK_EVERY == 0) {
            change = largest_change(p);
            st = oriel_all_reduce(world, rank, &change, &change, 1, ORIEL_F64, ORIEL_MAX);
        }
    }
    error = largest_error(p);
    if (st == ORIEL_OK)
        st = oriel_all_reduce(world, rank, &error, &error, 1, ORIEL_F64, ORIEL_MAX);
    if (st == ORIEL_OK && rank == 0)
        printf("%d cells, %d steps, error %.17g\n", p->total, steps, error);
    return st;
}

static int make_neighbours(int size, neighbours *to)
{
    to->count = size - 1;
    to->right = malloc(2 * (size_t)size * sizeof *to->right);
    to->left = malloc(2 * (size_t)size * sizeof *to->left);
    if (to->right == NULL || to->left == NULL)
        return 0;
    for (int i = 0; i < to->count; i++) {
        to->right[2 * i] = to->left[2 * i + 1] = i;
        to->right[2 * i + 1] = to->left[2 * i] = i + 1;
    }
    return 1;
}

static int make_piece(int total, int rank, int size, piece *p)
{
    p->total = total;
    p->first = (int)((long)total * rank / size);
    p->cells = (int)((long)total * (rank + 1) / size) - p->first;
    p->now = calloc((size_t)p->cells + 2, sizeof *p->now);
    p->next = calloc((size_t)p->cells + 2, sizeof *p->next);
    return p->now != NULL && p->next != NULL;
}

int main(int argc, char **argv)
{
    int total = argc > 1 ? atoi(argv[1]) : 64;
    double tolerance = argc > 2 ? atof(argv[2]) : 1e-9;
    neighbours to = {0};
    piece p = {0};
    oriel_comm *comm;
    int size, rank;
    int status = EXIT_FAILURE;

    if (oriel_comm_create(NULL, &comm) != ORIEL_OK) {
        fprintf(stderr, "heat: %s\n", oriel_last_error());
        return EXIT_FAILURE;
    }
    size = oriel_comm_size(comm);
    rank = oriel_comm_first_rank(comm);
    if (total < size)
        fprintf(stderr, "heat: %d cells are too few for %d ranks\n", total, size);
    else if (!make_neighbours(size, &to) || !make_piece(total, rank, size, &p))
        fprintf(stderr, "heat: rank %d is out of memory\n", rank);
    else if (solve(comm, &to, &p, tolerance) != ORIEL_OK)
        fprintf(stderr, "heat: %s\n", oriel_last_error());
    else
        status = EXIT_SUCCESS;

    /* After a failure wait for nobody: the others get an error too. The comm goes
     * before the buffers, since a started operation may still use them. */
    if (status != EXIT_SUCCESS) {
        oriel_comm_abandon(comm);
    } else if (oriel_comm_destroy(comm) != ORIEL_OK) {
        fprintf(stderr, "heat: %s\n", oriel_last_error());
        status = EXIT_FAILURE;
    }
    free(p.now);
    free(p.next);
    free(to.right);
    free(to.left);
    return status;
}
