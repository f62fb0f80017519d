/* A check that works in any thread of any process: it says what was wrong and
 * ends the program at once, so that no peer has to wait for its own deadline. */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include "oriel/oriel.h"

#define CHECK(condition, ...)                                                                      \
    ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__))
#define CHECK_OK(call)       check_status(__FILE__, __LINE__, #call, (call), ORIEL_OK)
#define CHECK_IS(want, call) check_status(__FILE__, __LINE__, #call, (call), (want))

void check_failed(const char *file, int line, const char *what, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 4, 5)));
void check_status(const char *file, int line, const char *call, oriel_status got,
                  oriel_status want);
/* The calling thread's last failure names all these; NULL ends the list. */
void check_says(const char *first, ...) __attribute__((sentinel));

#endif
