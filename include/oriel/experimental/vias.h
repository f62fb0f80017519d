/* EXPERIMENTAL, may change or go: further vias of an all-reduce on GPUs, for
 * oriel_all_reduce_via_on. The two with an NCCL window and oriel's kernels have run with ranks that
 * share one H200, on no two GPUs; those of multicast on no hardware. */
#ifndef ORIEL_VIAS_H
#define ORIEL_VIAS_H

#include <oriel/oriel.h>

/* A kernel that finds its peers in NCCL's window, and meets them in NCCL's LSA barrier. */
#define ORIEL_VIA_LSA ((oriel_via)3)
/* oriel's kernels, on addresses of an NCCL window. */
#define ORIEL_VIA_SYM_PEER ((oriel_via)4)
/* NVSwitch sums, in an order of its own: in a multicast object of oriel's, without NCCL ... */
#define ORIEL_VIA_MULTICAST ((oriel_via)5)
/* ... and in an NCCL window. */
#define ORIEL_VIA_SYM_MULTIMEM ((oriel_via)6)

#endif
