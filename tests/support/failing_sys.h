/* The table of system calls, counted: any one of them can be made to fail, and
 * what is held through it is known afterwards. */
#ifndef TESTS_SUPPORT_FAILING_SYS_H
#define TESTS_SUPPORT_FAILING_SYS_H

#include "base/sys.h"

/* From now on the library calls the system through the counting table. */
void failing_sys_install(void);
void failing_sys_remove(void);
/* The n-th call from now that can fail does, with `error`; 0: none does. */
void failing_sys_arm(long n, int error);
/* From now on only calls of this name count and fail; NULL: all. */
void failing_sys_only(const char *name);
/* No call fails any more; the one that did is remembered. */
void failing_sys_disarm(void);
/* Whether calls of the threads the library starts from now on are spared. */
void failing_sys_spare(int on);
/* The name of the call that failed since; NULL: none has. */
const char *failing_sys_victim(void);
/* Allocations, descriptors and maps that were taken and not given back. */
long failing_sys_held(void);

#endif
