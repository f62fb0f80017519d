#include "experimental/via.h"
#include "oriel/experimental/vias.h"

#include "base/config.h"
#include "experimental/multicast.h"

static oriel_via_windows *windows_of(const oriel_comm *comm)
{
    return &oriel_experimental_of(comm)->windows;
}

/* ---- what multimem can do ----------------------------------------------------------------- */

/* Floats have no minima and maxima here: the switch drops NaNs, oriel keeps them. */
static const uint8_t multimem_ops[ORIEL_DTYPE_COUNT][ORIEL_REDOP_COUNT] = {
    [ORIEL_F32] = {[ORIEL_SUM] = DEVICE_MULTIMEM_F32_SUM},
    [ORIEL_F64] = {[ORIEL_SUM] = DEVICE_MULTIMEM_F64_SUM},
    [ORIEL_F16] = {[ORIEL_SUM] = DEVICE_MULTIMEM_F16_SUM},
    [ORIEL_BF16] = {[ORIEL_SUM] = DEVICE_MULTIMEM_BF16_SUM},
    [ORIEL_C64] = {[ORIEL_SUM] = DEVICE_MULTIMEM_F32_SUM},
    [ORIEL_C128] = {[ORIEL_SUM] = DEVICE_MULTIMEM_F64_SUM},
    [ORIEL_U32] = {[ORIEL_SUM] = DEVICE_MULTIMEM_U32_SUM,
                   [ORIEL_MIN] = DEVICE_MULTIMEM_U32_MIN,
                   [ORIEL_MAX] = DEVICE_MULTIMEM_U32_MAX},
    [ORIEL_S32] = {[ORIEL_SUM] = DEVICE_MULTIMEM_U32_SUM,
                   [ORIEL_MIN] = DEVICE_MULTIMEM_S32_MIN,
                   [ORIEL_MAX] = DEVICE_MULTIMEM_S32_MAX},
    [ORIEL_U64] = {[ORIEL_SUM] = DEVICE_MULTIMEM_U64_SUM,
                   [ORIEL_MIN] = DEVICE_MULTIMEM_U64_MIN,
                   [ORIEL_MAX] = DEVICE_MULTIMEM_U64_MAX},
    [ORIEL_S64] = {[ORIEL_SUM] = DEVICE_MULTIMEM_U64_SUM,
                   [ORIEL_MIN] = DEVICE_MULTIMEM_S64_MIN,
                   [ORIEL_MAX] = DEVICE_MULTIMEM_S64_MAX},
};

uint32_t oriel_multimem_op(oriel_dtype dtype, oriel_redop op)
{
    return multimem_ops[dtype][op];
}

cu_ptr oriel_multimem_address(cu_ptr multimem, cu_ptr heap, size_t heap_bytes, cu_ptr at,
                              size_t bytes)
{
    cu_ptr offset = at - heap;

    if (multimem == 0 || at < heap || offset > heap_bytes || bytes > heap_bytes - offset ||
        (at | multimem) % 16 != 0)
        return 0;
    return multimem + offset;
}

/* ---- windows and barriers of kernels --------------------------------------------------------- */

static oriel_status check_lsa(const nccl_library *nccl)
{
    if (nccl->version >= NCCL_DEVICE_VERSION && nccl->dev_comm_create != NULL &&
        nccl->dev_comm_destroy != NULL)
        return ORIEL_OK;
    return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                      "the barrier of NCCL's device API is used from 2.30 on; %s is %d.%d.%d",
                      nccl->file, NCCL_PARTS(nccl->version));
}

/* What NCCL wrote is what this was made for. */
static oriel_status describe_lsa(const oriel_comm *comm, struct oriel_nccl *nccl, int i,
                                 int barriers)
{
    const nccl_device_comm *made = &windows_of(comm)->made[i];
    cu_ptr stride = (cu_ptr)made->resource_window.stride << 32;
    int rank = comm->first_rank + i;

    if (made->magic != NCCL_MAGIC || made->rank != rank || made->size != comm->size ||
        made->lsa_barriers != barriers)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED,
                          "NCCL %d.%d.%d lays its device side out in another way than 2.30",
                          nccl->links.nccl->version / 10000, nccl->links.nccl->version / 100 % 100,
                          nccl->links.nccl->version % 100);
    if (made->lsa_size != comm->size || made->lsa_rank != rank)
        return oriel_fail(ORIEL_ERR_UNSUPPORTED, "NCCL finds %d of %d ranks within reach",
                          made->lsa_size, comm->size);
    windows_of(comm)->lsa[i] = (device_via){
        .window = (uint64_t)(uintptr_t)nccl->heaps[i],
        .barrier = made->resource_window.base + (cu_ptr)NCCL_BUFFER_UNIT * made->lsa_barrier_at,
        .stride = stride,
        .barriers = (uint32_t)barriers};
    return ORIEL_OK;
}

static oriel_status open_lsa(oriel_comm *comm, struct oriel_nccl *nccl)
{
    oriel_nccl_wait wait = oriel_nccl_patience(comm, oriel_config_number(ORIEL_OPT_INIT_TIMEOUT));
    int barriers = ((const oriel_devices *)comm->devices)->ctas;
    nccl_device_needs needs = {.size = sizeof needs,
                               .magic = NCCL_MAGIC,
                               .version = NCCL_DEVICE_VERSION,
                               .lsa_barriers = barriers};
    oriel_status st = oriel_nccl_device_create(&nccl->links, &needs, &wait, windows_of(comm)->made);

    for (int i = 0; i < nccl->links.n && st == ORIEL_OK; i++)
        st = describe_lsa(comm, nccl, i, barriers);
    return st;
}

static oriel_status find_multimem(const oriel_comm *comm, const struct oriel_nccl *nccl)
{
    const nccl_library *calls = nccl->links.nccl;
    oriel_status st = ORIEL_OK;

    for (int i = 0; i < nccl->links.n && st == ORIEL_OK; i++) {
        void *at = NULL;

        if (calls->multimem_pointer != NULL)
            st = oriel_nccl_check(calls, nccl->links.links[i].comm,
                                  calls->multimem_pointer(nccl->heaps[i], 0, &at),
                                  "asking for a multimem address");
        windows_of(comm)->multimem[i] = (cu_ptr)(uintptr_t)at;
        if (st == ORIEL_OK && at == NULL)
            st = oriel_fail(ORIEL_ERR_UNSUPPORTED,
                            "NCCL has no multimem address of the window of rank %d: that needs "
                            "GPUs of sm_90 or newer, one for each rank, behind an NVSwitch",
                            nccl->links.first + i);
    }
    return st;
}

oriel_status oriel_via_windows_open(oriel_comm *comm)
{
    struct oriel_nccl *nccl = ((const oriel_devices *)comm->devices)->nccl;
    oriel_via_windows *w = windows_of(comm);
    oriel_status st =
        oriel_nccl_note(comm, check_lsa(nccl->links.nccl), w->no_lsa, sizeof w->no_lsa);

    if (st == ORIEL_OK && w->no_lsa[0] == '\0')
        st = oriel_nccl_note(comm, open_lsa(comm, nccl), w->no_lsa, sizeof w->no_lsa);
    if (st == ORIEL_OK)
        st =
            oriel_nccl_note(comm, find_multimem(comm, nccl), w->no_multimem, sizeof w->no_multimem);
    return st;
}

/* ---- what ops ask for ------------------------------------------------------------------------ */

const char *oriel_experimental_missing(const oriel_comm *comm, oriel_via via)
{
    const oriel_multicast *multicast = oriel_multicast_of(comm);
    const char *why = "";

    if (via == ORIEL_VIA_MULTICAST)
        return multicast->base == 0 ? multicast->why : NULL;
    if (!oriel_nccl_has_windows(comm))
        return "this comm has no NCCL communicator; set ORIEL_FABRIC=nccl on all processes before "
               "they start";
    if (via == ORIEL_VIA_LSA)
        why = windows_of(comm)->no_lsa;
    if (via == ORIEL_VIA_SYM_MULTIMEM)
        why = windows_of(comm)->no_multimem;
    return why[0] != '\0' ? why : NULL;
}

int oriel_experimental_any_group(oriel_via via)
{
    return via == ORIEL_VIA_SYM_PEER;
}

int oriel_experimental_reduces(oriel_via via, oriel_dtype dtype, oriel_redop op)
{
    return (via != ORIEL_VIA_MULTICAST && via != ORIEL_VIA_SYM_MULTIMEM) ||
           oriel_multimem_op(dtype, op) != DEVICE_MULTIMEM_NONE;
}

int oriel_experimental_staged(oriel_via via)
{
    return via == ORIEL_VIA_LSA || via == ORIEL_VIA_MULTICAST || via == ORIEL_VIA_SYM_MULTIMEM;
}

void oriel_experimental_describe(const oriel_comm *comm, int rank, oriel_via via, oriel_dtype dtype,
                                 oriel_redop op, device_call *call)
{
    const oriel_devices *devices = comm->devices;
    const struct oriel_experimental *x = oriel_experimental_of(comm);
    int local = rank - comm->first_rank;
    const oriel_cuda_memory *heap = &devices->ranks[local].heap;
    cu_ptr multimem = via == ORIEL_VIA_MULTICAST      ? x->multicast.base
                      : via == ORIEL_VIA_SYM_MULTIMEM ? x->windows.multimem[local]
                                                      : 0;

    call->flags &= ~(uint32_t)DEVICE_DIRECT;
    if (via == ORIEL_VIA_LSA) {
        call->via = x->windows.lsa[local];
        call->flags |= DEVICE_LSA;
    }
    call->via.multimem =
        oriel_multimem_address(multimem, heap->base, heap->bytes, heap->base + devices->stage_at,
                               2 * (size_t)devices->ctas * devices->stage_bytes);
    call->via.op = oriel_multimem_op(dtype, op);
}
