/* What a rank has of a GPU that it may share with others, from numbers that all ranks know. */
#ifndef ORIEL_CORE_DEVICE_SHARE_H
#define ORIEL_CORE_DEVICE_SHARE_H

#include <stddef.h>
#include <stdint.h>

/* CTAs of a rank's kernel at most, such that those of all `ranks` of a GPU of `sms` multiprocessors
 * are resident together: `most` of them fit on a multiprocessor. `asked`: of all ranks; 0: of
 * nothing is asked for. */
int oriel_share_ctas(int sms, int ranks, int asked, int most);
/* Lines that a thread has in each slot, in a world of so many ranks. */
uint32_t oriel_share_lines(int ranks);
/* Bytes of a CTA's stage for what it sends, where a rank's stages have `bytes`. */
uint32_t oriel_share_stage(size_t bytes, int ctas);

#endif
