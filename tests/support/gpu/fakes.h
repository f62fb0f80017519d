/* The libraries of tests/fake in place of the driver and of NCCL. */
#ifndef TESTS_SUPPORT_FAKES_H
#define TESTS_SUPPORT_FAKES_H

/* Opens both, and the driver's functions. What NCCL is asked to do from now on, line by line, in
 * a text that the caller may empty; NULL: they are not there. */
char *fakes_open(void);

#endif
