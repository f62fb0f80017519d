/* Copies for buffers of any alignment. */
#ifndef ORIEL_BASE_COPY_H
#define ORIEL_BASE_COPY_H

#include <stddef.h>

/* memcpy, or the same by vector loads and stores. memcpy itself takes `rep movsb` from
 * 2 KiB on in many glibc releases: the fastest copy there is where both addresses lie
 * alike in their pages, but one that some processors run at a tenth of the speed where
 * they lie badly to each other, as malloc'd memory does against memory of the heap. */
void oriel_copy(void *dst, const void *src, size_t bytes);
/* The same past the caches, for results that do not fit them: the lines of `dst`
 * are not read first. Complete when it returns, for other threads too. */
void oriel_copy_stream(void *dst, const void *src, size_t bytes);

#endif
