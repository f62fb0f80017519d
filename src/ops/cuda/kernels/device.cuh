/* How kernels of different ranks meet. Needs: every rank of the group launches the same
 * number of CTAs, and all of them are resident together (launch.c sees to it). CTA k of
 * one rank meets CTA k of the others; thread p of a CTA speaks for member p.
 *
 * Order and scope: what a CTA wrote before sync() is visible to the same CTA of every
 * member after it: each speaker releases after __syncthreads and acquires before the next
 * one, at the scope of the GPU where all members share one, else of the system. enter()
 * orders nothing but the lines it exchanges: what a rank's stream did before its kernel is
 * complete when that has waited for it, and all loads of peers' buffers go past the L1 cache.
 * Every spin ends with the deadline, with the error word of the own heap, or with the abort
 * word that the host writes. */
#ifndef ORIEL_OPS_CUDA_KERNELS_DEVICE_CUH
#define ORIEL_OPS_CUDA_KERNELS_DEVICE_CUH

#include "core/device/layout.h"
#include "ops/cuda/kernels/memory.cuh"

/* A failing rank says "I am out" by running so far ahead. */
#define FAR_AHEAD 0x40000000u
#define HEAR_NS   200000ull     /* how often a spin looks over the bus */
#define RECORD_NS 5000000ull    /* how long a mismatch waits to hear what it was */
#define DRAIN_NS  2000000000ull /* how long a failed CTA waits for peers to let go */

/* ---- the ranks --------------------------------------------------------------------- */

DEVICE device_table *own_table(const device_call &c)
{
    return (device_table *)c.table;
}

DEVICE device_table *table_of(const device_call &c, uint32_t member)
{
    return (device_table *)c.heap[member];
}

DEVICE uint32_t own_rank(const device_call &c)
{
    return c.ranks[c.index];
}

/* Whether this thread speaks for another member. */
DEVICE bool speaks(const device_call &c)
{
    return THREAD < c.n && THREAD != c.index;
}

/* ---- failure ----------------------------------------------------------------------- */

/* What `member` asked for in this call, if it says so in time: only for a message. */
SLOW void read_record(const device_call &c, int member, device_record *record_p)
{
    device_table *self = own_table(c);
    uint32_t rank = c.ranks[member];
    uint64_t began = clock_ns();

    while (load_relaxed(&self->record[rank].call) != self->counts[0][rank].calls + 1 &&
           clock_ns() - began < RECORD_NS) {
    }
    *record_p = self->record[rank];
}

/* The first failure of a rank is reported; the others' kernels end. */
SLOW uint32_t fail(const device_call &c, uint32_t error, int member, int64_t a = 0, int64_t b = 0,
                   int64_t d = 0, int64_t e = 0)
{
    device_table *self = own_table(c);
    device_report *report = (device_report *)self->report;

    if (swap_if(&self->error, DEVICE_FINE, error) != DEVICE_FINE)
        return load_relaxed(&self->error);
    report->peer = member >= 0 ? (int32_t)c.ranks[member] : -1;
    report->mine = device_record{0, c.hash, c.what, c.n, c.block, c.shape};
    if (error == DEVICE_DIFFERENT)
        read_record(c, member, &report->theirs);
    report->detail[0] = a;
    report->detail[1] = b;
    report->detail[2] = d;
    report->detail[3] = e;
    __threadfence_system();
    store_relaxed(&report->error, error);
    for (uint32_t p = 0; p < c.n; p++)
        swap_if(&table_of(c, p)->error, DEVICE_FINE, DEVICE_REVOKED);
    return error;
}

/* Whether `member` has come to this call with another record. CTA 0 comes to every call. */
SLOW bool differs(const device_call &c, uint32_t member)
{
    device_table *self = own_table(c);
    uint32_t rank = c.ranks[member];
    uint64_t head, tail;

    load_line(&self->record[rank], head, tail);
    return CTA == 0 && (uint32_t)head == self->counts[0][rank].calls + 1 &&
           (uint32_t)(head >> 32) != c.hash;
}

/* How long a thread has waited. */
struct patience {
    uint64_t began; /* ns; 0: it has not looked yet */
    uint64_t heard; /* when it last looked what the host and the member say */
};

SLOW uint32_t look(const device_call &c, uint32_t member, patience &p)
{
    device_table *self = own_table(c);
    uint64_t now = clock_ns();
    uint32_t error = load_relaxed(&self->error);

    if (error != DEVICE_FINE)
        return error;
    if (p.began == 0)
        p.began = p.heard = now;
    if (now - p.heard > HEAR_NS) {
        p.heard = now;
        if (load_relaxed(&((device_report *)self->report)->abort) != 0) {
            swap_if(&self->error, DEVICE_FINE, DEVICE_ABORTED);
            return DEVICE_ABORTED;
        }
        if (differs(c, member))
            return fail(c, DEVICE_DIFFERENT, (int)member);
    }
    if (now - p.began > self->timeout_ns)
        return fail(c, DEVICE_LATE, (int)member);
    return DEVICE_FINE;
}

/* Spins until `ready` says so; DEVICE_FINE, or why not. `ready` may change `member`. */
template <class Ready>
DEVICE uint32_t spin(const device_call &c, const uint32_t &member, Ready ready)
{
    patience p = {0, 0};
    uint32_t error = DEVICE_FINE;

    for (uint32_t turn = 1; !ready(); turn++) {
        if (turn % 64 == 0 && (error = look(c, member, p)) != DEVICE_FINE)
            break;
    }
    return error;
}

/* Where a peer failed first, its host says why; until then the own one knows that much. */
DEVICE void say_revoked(const device_call &c)
{
    if (THREAD == 0)
        store_relaxed(&((device_report *)own_table(c)->report)->revoked, 1);
}

/* Fills all of the result; CTAs of one rank may do so side by side. */
SLOW void poison(const device_call &c)
{
    char *recv = (char *)c.recv;
    uint64_t packs = c.recv % 16 == 0 ? c.recv_bytes / 16 : 0;

    say_revoked(c);
    for (uint64_t i = THREAD; i < packs; i += blockDim.x)
        store_pack(recv + 16 * i, ulonglong2{c.poison[0], c.poison[1]});
    for (uint64_t i = 16 * packs + THREAD; i < c.recv_bytes; i += blockDim.x)
        recv[i] = (char)(c.poison[i / 8 % 2] >> 8 * (i % 8));
}

/* ---- meeting ----------------------------------------------------------------------- */

/* What a speaker knows. */
struct speaker {
    device_counts counts; /* of this rank with the member, as read at the begin */
    uint32_t exit;  /* what `synced` is when the member has touched all it will, at the earliest */
    bool claimed;   /* the member has seen this rank come: it may touch its buffers */
    uint32_t epoch; /* of NCCL's barrier */
};

/* Shared by the CTA; by member. */
struct meeting {
    const char *send[DEVICE_RANKS]; /* in this rank's addresses */
    char *recv[DEVICE_RANKS];       /* likewise */
    char *stage[DEVICE_RANKS];      /* of the same CTA */
    speaker speakers[DEVICE_RANKS]; /* here, since the loops want the registers */
    uint32_t mode;                  /* MODE_..., between processes */
    bool direct;                    /* buffers are touched, no stages */
    bool odd;                       /* some address is no multiple of 16 */
};

/* experimental/via.cuh */
SLOW void lsa_begin(const device_call &c, meeting &m);
SLOW uint32_t lsa_meet(const device_call &c, meeting &m);
DEVICE void lsa_end(const device_call &c, const meeting &m);

DEVICE device_counts *own_counts(const device_call &c)
{
    return &own_table(c)->counts[CTA][c.ranks[THREAD]];
}

/* Says what this rank asks for, so that a peer that waits in vain can compare. */
DEVICE void announce(const device_call &c, uint32_t calls)
{
    device_record *record = &table_of(c, THREAD)->record[own_rank(c)];

    if (CTA != 0)
        return;
    store_line(&record->bytes, c.block, c.shape);
    store_line(record, (uint64_t)c.hash << 32 | (calls + 1), (uint64_t)c.n << 32 | c.what);
}

/* Whether all members have mapped the window, as it is now. */
DEVICE bool is_ready(const device_call &c, uint64_t window, uint32_t generation)
{
    uint64_t number = window >> DEVICE_WINDOW_SHIFT;
    uint32_t ready, stale;

    if (number == 0)
        return false;
    ready = load_relaxed(&own_table(c)->ready[number - 1]);
    stale = load_relaxed(&own_table(c)->stale[number - 1]);
    return ready == generation && stale != generation;
}

/* Whether all members live in one process. */
DEVICE bool all_plain(const device_call &c)
{
    return c.plain == (c.n < 64 ? (1ull << c.n) - 1 : ~0ull);
}

/* Whether members in other processes may touch this rank's buffers. */
DEVICE bool has_windows(const device_call &c)
{
    return (c.flags & DEVICE_DIRECT) && !all_plain(c);
}

enum { MODE_OPEN, MODE_DIRECT, MODE_STAGED };

/* Whether all members can reach what this rank has to show. Buffers become ready at any
 * time, but all CTAs of a rank must say the same: they divide the work otherwise when it is
 * direct, so what one leaves to the others would be done by nobody. The first of them to
 * come decides; end_items() opens it again. */
DEVICE bool reachable(const device_call &c, meeting &m)
{
    if (!has_windows(c))
        return c.flags & DEVICE_DIRECT;
    if (THREAD == 0) {
        bool send = !(c.flags & DEVICE_SHOWS_SEND) || is_ready(c, c.send_window, c.send_generation);
        bool recv = !(c.flags & DEVICE_SHOWS_RECV) || is_ready(c, c.recv_window, c.recv_generation);
        uint32_t mine = send && recv ? MODE_DIRECT : MODE_STAGED;
        uint32_t first = swap_if(&own_table(c)->mode, MODE_OPEN, mine);

        m.mode = first == MODE_OPEN ? mine : first;
    }
    __syncthreads();
    return m.mode == MODE_DIRECT;
}

/* An address of `member`, as it wrote it. */
DEVICE char *reach(const device_call &c, uint32_t member, uint64_t said)
{
    uint64_t window = said >> DEVICE_WINDOW_SHIFT;

    if (c.plain >> member & 1)
        return (char *)said;
    if (window == 0)
        return nullptr;
    /* Past the L1 cache: a line of this table that was read before holds what was true then. */
    return (char *)(load_relaxed(&own_table(c)->window[c.ranks[member]][window - 1]) +
                    (said & ((1ull << DEVICE_WINDOW_SHIFT) - 1)));
}

/* The speaker's part of enter(). */
DEVICE uint32_t enter_with(const device_call &c, meeting &m, bool direct, bool &all_direct)
{
    speaker &s = m.speakers[THREAD];
    uint32_t rank = c.ranks[THREAD];
    bool plain = c.plain >> THREAD & 1;
    device_entry *there = &table_of(c, THREAD)->entry[CTA][own_rank(c)];
    device_entry *here = &own_table(c)->entry[CTA][rank];
    uint64_t tag = (uint64_t)(s.counts.entered + 1) << 32 | c.hash;
    uint64_t send, recv, send_tag, recv_tag, old;
    uint32_t error;

    store_line(&there->send, (plain ? c.send : c.send_window) | (direct ? DEVICE_REACHABLE : 0),
               tag);
    store_line(&there->recv, plain ? c.recv : c.recv_window, tag);
    old = exchange(&table_of(c, THREAD)->claim[CTA][own_rank(c)], tag);
    announce(c, s.counts.calls);
    error = spin(c, THREAD, [&] {
        load_line(&here->send, send, send_tag);
        load_line(&here->recv, recv, recv_tag);
        return send_tag >> 32 == tag >> 32 && recv_tag >> 32 == tag >> 32;
    });
    s.claimed = old != DEVICE_GIVEN_UP;
    if (error != DEVICE_FINE) {
        /* From now on the peer finds that it came too late, unless it has come. */
        uint64_t *claim = &own_table(c)->claim[CTA][rank];
        uint64_t seen = swap_if(claim, tag, tag);

        if (seen >> 32 != tag >> 32)
            swap_if(claim, seen, DEVICE_GIVEN_UP);
        return error;
    }
    if (!s.claimed)
        return fail(c, DEVICE_REVOKED, (int)THREAD);
    if (send_tag != tag)
        return fail(c, DEVICE_DIFFERENT, (int)THREAD);
    all_direct = direct && (send & DEVICE_REACHABLE) != 0;
    m.send[THREAD] = reach(c, THREAD, send & ~DEVICE_REACHABLE);
    m.recv[THREAD] = reach(c, THREAD, recv);
    return DEVICE_FINE;
}

/* Meets all members and learns where their buffers are, and whether all can be touched, as
 * this rank's can if it is `direct`. All threads; the same for all. */
DEVICE uint32_t enter(const device_call &c, meeting &m, bool direct)
{
    bool all_direct = direct;
    bool odd;
    uint32_t error = DEVICE_FINE;

    if (THREAD < c.n) {
        speaker &s = m.speakers[THREAD];

        s.counts = *own_counts(c);
        s.exit = s.counts.synced + 1;
        s.claimed = false;
        error = load_relaxed(&own_table(c)->error);
        m.stage[THREAD] = (char *)c.heap[THREAD] + c.stage_at + 2ull * CTA * c.stage;
        if (c.flags & DEVICE_LSA)
            lsa_begin(c, m);
    }
    if (THREAD == c.index) {
        m.send[THREAD] = (const char *)c.send;
        m.recv[THREAD] = (char *)c.recv;
    }
    if (speaks(c) && error == DEVICE_FINE)
        error = enter_with(c, m, direct, all_direct);
    all_direct = __syncthreads_and(all_direct);
    odd = error == DEVICE_FINE && THREAD < c.n &&
          ((uint64_t)m.send[THREAD] | (uint64_t)m.recv[THREAD] | c.block) % 16 != 0;
    odd = __syncthreads_or(odd);
    if (THREAD == 0) {
        m.direct = all_direct;
        m.odd = odd;
    }
    return __syncthreads_or(error != DEVICE_FINE) ? DEVICE_REVOKED : DEVICE_FINE;
}

/* What the host wrote is fetched, and pages are found, while the kernel before still runs. */
DEVICE void follow(const device_call &c)
{
    asm volatile("" : : "l"(c.table), "l"(c.block), "r"(c.n), "r"(c.root), "l"(c.shape));
    if (THREAD < c.n)
        touch(&table_of(c, THREAD)->sync[CTA][own_rank(c)]);
    wait_for_last();
}

/* Signals the member that this CTA has come so far. */
DEVICE void signal(const device_call &c, uint32_t value)
{
    uint32_t *there = &table_of(c, THREAD)->sync[CTA][own_rank(c)];

    if (c.flags & DEVICE_ONE_GPU)
        store_release_gpu(there, value);
    else
        store_release(there, value);
}

DEVICE bool has_come(const device_call &c, uint32_t value)
{
    const uint32_t *here = &own_table(c)->sync[CTA][c.ranks[THREAD]];
    uint32_t seen = c.flags & DEVICE_ONE_GPU ? load_acquire_gpu(here) : load_acquire(here);

    return (int32_t)(seen - value) >= 0;
}

/* All have done what they did before. All threads; the same for all. */
DEVICE uint32_t sync(const device_call &c, meeting &m)
{
    uint32_t error = DEVICE_FINE;

    __syncthreads();
    if (c.flags & DEVICE_LSA) {
        error = speaks(c) ? lsa_meet(c, m) : DEVICE_FINE;
    } else if (speaks(c)) {
        uint32_t round = ++m.speakers[THREAD].counts.synced;

        signal(c, round);
        error = spin(c, THREAD, [&] { return has_come(c, round); });
        if (error == DEVICE_FINE && has_come(c, round + FAR_AHEAD / 2)) {
            /* The next call may be on the stream: it would meet what is left of this one. */
            swap_if(&own_table(c)->error, DEVICE_FINE, DEVICE_REVOKED);
            error = DEVICE_REVOKED;
        }
    }
    return __syncthreads_or(error != DEVICE_FINE) ? DEVICE_REVOKED : DEVICE_FINE;
}

/* After a failure: lets the others go, and waits until they have let go of this rank's
 * buffers, as ranks do that saw it come. */
SLOW void withdraw(const device_call &c, const meeting &m)
{
    if (speaks(c)) {
        const speaker &s = m.speakers[THREAD];
        const uint64_t *claim = &own_table(c)->claim[CTA][c.ranks[THREAD]];
        uint64_t began = clock_ns();

        signal(c, s.counts.synced + FAR_AHEAD);
        /* Nobody touches buffers of a call by NCCL's barrier, and nobody says so there. */
        while (s.claimed && !(c.flags & DEVICE_LSA) && !has_come(c, s.exit) &&
               *(const volatile uint64_t *)claim != DEVICE_GIVEN_UP &&
               clock_ns() - began < DRAIN_NS) {
        }
    }
    __syncthreads();
    poison(c);
}

/* Goes on where an earlier kernel of the same call has left. All threads; a barrier must
 * follow. */
DEVICE void resume(const device_call &c, meeting &m)
{
    if (THREAD < c.n) {
        speaker &s = m.speakers[THREAD];

        s.counts = *own_counts(c);
        s.exit = s.counts.synced + 1;
        s.claimed = true;
    }
}

/* Ends a call that began with enter(). */
DEVICE void leave(const device_call &c, meeting &m, uint32_t error)
{
    if (error != DEVICE_FINE) {
        withdraw(c, m);
        return;
    }
    if (speaks(c)) {
        speaker &s = m.speakers[THREAD];

        s.counts.entered++;
        s.counts.calls++;
        *own_counts(c) = s.counts;
        if (c.flags & DEVICE_LSA)
            lsa_end(c, m);
    }
}

#endif
