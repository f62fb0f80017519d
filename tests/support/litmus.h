/* The kernels of tests/kernels/litmus.cu and machines.cu, compiled with this build's flags. */
#ifndef TESTS_SUPPORT_LITMUS_H
#define TESTS_SUPPORT_LITMUS_H

struct oriel_team;

struct litmus {
    const char *name;
    void (*entry)(struct oriel_team *team);
};

/* (x: 40 numbers from 0, box: 200, wrong: 1; rounds); all are int64_t. */
enum { LITMUS_X = 40, LITMUS_BOX = 200 };
extern const struct litmus litmus_list[];
extern const int litmus_count;

#endif
