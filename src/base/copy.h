/* Copies for buffers of any alignment. */
#ifndef ORIEL_BASE_COPY_H
#define ORIEL_BASE_COPY_H

#include <stddef.h>

/* memcpy by vector loads and stores. memcpy itself takes `rep movsb` from 2 KiB
 * on in many glibc releases, which some processors run at a tenth of the speed
 * when the two addresses lie badly to each other; malloc'd memory against memory
 * of the heap lies so. */
void oriel_copy(void *dst, const void *src, size_t bytes);
/* The same past the caches, for results that do not fit them: the lines of `dst`
 * are not read first. Complete when it returns, for other threads too. */
void oriel_copy_stream(void *dst, const void *src, size_t bytes);

#endif
