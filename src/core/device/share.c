#include "core/device/share.h"

#include "base/math.h"
#include "core/device/layout.h"

/* Up to MANY_RANKS slots are cheap enough to be large. */
enum { MANY_RANKS = 8, NCCL_SMS = 32 };

/* What a GPU's ranks take when nothing is asked for: one CTA on each multiprocessor, so that two
 * comms, or one beside other kernels, fit as well. NCCL's kernels, which may overlap with ours,
 * need whole multiprocessors, up to 32 of them: a rank with a GPU of its own leaves those alone.
 * Ranks that share one would need to leave 32 each. */
static int default_ctas(int sms, int ranks)
{
    return ranks == 1 && sms > 2 * NCCL_SMS ? sms - NCCL_SMS : sms;
}

int oriel_share_ctas(int sms, int ranks, int asked, int most)
{
    int all = asked == 0 ? default_ctas(sms, ranks) : asked < most * sms ? asked : most * sms;
    int ctas = all / ranks < DEVICE_CTAS ? all / ranks : DEVICE_CTAS;

    return ctas > 0 ? ctas : 1;
}

uint32_t oriel_share_lines(int ranks)
{
    return ranks <= MANY_RANKS ? DEVICE_SMALL_LINES : 1;
}

uint32_t oriel_share_stage(size_t bytes, int ctas)
{
    return (uint32_t)(bytes / 2 / (size_t)ctas) / 256 * 256;
}
