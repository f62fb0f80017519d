/* What this process holds of the system, to find what was left behind. */
#ifndef TESTS_SUPPORT_RESOURCES_H
#define TESTS_SUPPORT_RESOURCES_H

typedef struct test_resources {
    int fds;    /* but for ... */
    int pidfds; /* ... those of processes */
    int threads;
    int shared_maps; /* of oriel's memfds */
} test_resources;

test_resources resources_now(void);
/* Ends the program when there is more than before. Threads that have been joined
 * may take a moment to go from the process table. */
void resources_check(test_resources before, const char *where);

#endif
