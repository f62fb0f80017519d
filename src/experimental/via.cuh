/* EXPERIMENTAL. The barrier has run with ranks that share one H200, on no two GPUs; multimem on no
 * hardware. Included by large.cuh, behind device.cuh.
 *
 * Staged calls that reach their peers, or meet them, by other means than plain addresses and
 * oriel's flags. What is said at the head of device.cuh holds for them as well: the same CTAs
 * on all members, all resident together, every spin bounded.
 *
 * NCCL's LSA barrier, as its 2.30 headers have it: for each CTA index an epoch of the own rank,
 * and an inbox for each peer; a rank that arrives writes epoch + 1 to its inbox at every peer, and
 * waits for all of its own. It compares nothing and knows no deaths, so a call begins with enter(),
 * and the waits are oriel's: with a deadline, the error and the abort word.
 *
 * multimem: one address stands for the stages of all ranks, whose switch sums or stores there. */
#ifndef ORIEL_EXPERIMENTAL_VIA_CUH
#define ORIEL_EXPERIMENTAL_VIA_CUH

/* ---- NCCL's windows and its barrier --------------------------------------------------- */

/* How a window lies in device memory; the same from 2.28.3 to 2.30.7. */
struct nccl_window_head {
    uint64_t host;
    uint64_t base; /* of rank 0's part */
    int32_t lsa_rank, world_rank;
    uint32_t stride_4g; /* to the next rank's */
};

/* As ncclGetLsaPointer. */
DEVICE char *lsa_pointer(uint64_t window, uint64_t at, uint32_t rank)
{
    const nccl_window_head *w = (const nccl_window_head *)window;

    return (char *)(w->base + ((uint64_t)w->stride_4g << 32) * rank + at);
}

/* Word i of the barrier's state on a rank. */
DEVICE uint32_t *lsa_word(const device_call &c, uint32_t rank, uint32_t i)
{
    return (uint32_t *)(c.via.barrier + c.via.stride * rank) + i;
}

DEVICE uint32_t *lsa_epoch(const device_call &c)
{
    return lsa_word(c, own_rank(c), c.via.barriers + CTA);
}

/* Of `rank`, for what `from` tells it. */
DEVICE uint32_t *lsa_inbox(const device_call &c, uint32_t rank, uint32_t from)
{
    return lsa_word(c, rank, 3 * c.via.barriers + CTA * c.world + from);
}

/* A member's part of enter(). */
SLOW void lsa_begin(const device_call &c, meeting &m)
{
    m.stage[THREAD] = lsa_pointer(c.via.window, c.stage_at + 2ull * CTA * c.stage, c.ranks[THREAD]);
    m.speakers[THREAD].epoch = *lsa_epoch(c);
}

/* A speaker's part of sync(). */
SLOW uint32_t lsa_meet(const device_call &c, meeting &m)
{
    uint32_t epoch = ++m.speakers[THREAD].epoch;
    const uint32_t *inbox = lsa_inbox(c, own_rank(c), c.ranks[THREAD]);

    store_release(lsa_inbox(c, c.ranks[THREAD], own_rank(c)), epoch);
    return spin(c, THREAD, [&] { return (int32_t)(load_acquire(inbox) - epoch) >= 0; });
}

/* All speakers have come to the same epoch: any of them may write it. */
DEVICE void lsa_end(const device_call &c, const meeting &m)
{
    *lsa_epoch(c) = m.speakers[THREAD].epoch;
}

/* ---- multimem ------------------------------------------------------------------------- */

#if __CUDA_ARCH__ >= 900
#define SUM_OF_FOUR(op, type, kind)                                                                \
    asm volatile("multimem.ld_reduce.relaxed.sys.global." op "." type " {%0, %1, %2, %3}, [%4];"   \
                 : "=" kind(w[0]), "=" kind(w[1]), "=" kind(w[2]), "=" kind(w[3])                  \
                 : "l"(from)                                                                       \
                 : "memory")
/* What has no vectors: element by element. */
#define SUM_OF_EACH(op, kind, T, word)                                                             \
    do {                                                                                           \
        for (int k = 0; k < (int)(16 / sizeof(T)); k++)                                            \
            asm volatile("multimem.ld_reduce.relaxed.sys.global." op " %0, [%1];"                  \
                         : "=" kind(word[k])                                                       \
                         : "l"((const T *)from + k)                                                \
                         : "memory");                                                              \
    } while (0)

DEVICE void multimem_pack(uint32_t op, const char *from, uint32_t *w)
{
    uint64_t *d = (uint64_t *)w;

    switch (op) {
    case DEVICE_MULTIMEM_F32_SUM:
        SUM_OF_FOUR("add.v4", "f32", "r");
        break;
    case DEVICE_MULTIMEM_F16_SUM:
        SUM_OF_FOUR("add.acc::f32.v4", "f16x2", "r");
        break;
    case DEVICE_MULTIMEM_BF16_SUM:
        SUM_OF_FOUR("add.acc::f32.v4", "bf16x2", "r");
        break;
    case DEVICE_MULTIMEM_F64_SUM:
        SUM_OF_EACH("add.f64", "d", double, ((double *)d));
        break;
    case DEVICE_MULTIMEM_U32_SUM:
        SUM_OF_EACH("add.u32", "r", uint32_t, w);
        break;
    case DEVICE_MULTIMEM_U32_MIN:
        SUM_OF_EACH("min.u32", "r", uint32_t, w);
        break;
    case DEVICE_MULTIMEM_U32_MAX:
        SUM_OF_EACH("max.u32", "r", uint32_t, w);
        break;
    case DEVICE_MULTIMEM_S32_MIN:
        SUM_OF_EACH("min.s32", "r", uint32_t, w);
        break;
    case DEVICE_MULTIMEM_S32_MAX:
        SUM_OF_EACH("max.s32", "r", uint32_t, w);
        break;
    case DEVICE_MULTIMEM_U64_SUM:
        SUM_OF_EACH("add.u64", "l", uint64_t, d);
        break;
    case DEVICE_MULTIMEM_U64_MIN:
        SUM_OF_EACH("min.u64", "l", uint64_t, d);
        break;
    case DEVICE_MULTIMEM_U64_MAX:
        SUM_OF_EACH("max.u64", "l", uint64_t, d);
        break;
    case DEVICE_MULTIMEM_S64_MIN:
        SUM_OF_EACH("min.s64", "l", uint64_t, d);
        break;
    case DEVICE_MULTIMEM_S64_MAX:
        SUM_OF_EACH("max.s64", "l", uint64_t, d);
        break;
    }
}
#endif

/* What a warp does of a strip: all ranks' stages at `at` summed, to all ranks' stages at `to`.
 * Whole packs: what is behind the end of a strip is nobody's. */
SLOW void multimem_share(const device_call &c, uint64_t at, uint64_t to, uint32_t bytes)
{
#if __CUDA_ARCH__ >= 900
    for (uint32_t i = 16 * (THREAD % 32); i < bytes; i += 512) {
        __align__(16) uint32_t w[4];

        multimem_pack(c.via.op, (const char *)(c.via.multimem + at) + i, w);
        asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"((char *)(c.via.multimem + to) + i), "r"(w[0]), "r"(w[1]), "r"(w[2]),
                       "r"(w[3])
                     : "memory");
    }
#endif
}

#endif
