/* Small calls: one exchange through the slots, each line of which carries its own tag, so
 * that nothing but the data itself has to arrive. A thread takes 8 bytes of every block: one
 * line to and one from each member; or, for more bytes, several times as much. Thread 0
 * exchanges a line with every member in every call, whatever it has to send.
 *
 * Slots are used in turn, two for each pair of ranks and CTA. A rank that writes a slot for the
 * second time has seen its peer's lines of the call between, which the peer sent after its
 * kernel of the call before had ended: the slot has been read. */
#ifndef ORIEL_OPS_CUDA_KERNELS_SMALL_CUH
#define ORIEL_OPS_CUDA_KERNELS_SMALL_CUH

#include "ops/cuda/kernels/element.cuh"

/* As oriel_kind in core/world/trace.h. */
enum kind {
    ALL_REDUCE = 1,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    BROADCAST,
    PERMUTE,
    BARRIER,
    RAGGED_ALL_TO_ALL
};

DEVICE bool scatters(const device_call &c)
{
    return c.kind == REDUCE_SCATTER || c.kind == ALL_TO_ALL;
}

/* Whether this rank has data for `member`, or wants some of it. */
DEVICE bool gives(const device_call &c, uint32_t member)
{
    return c.kind == BROADCAST ? c.root == (int)c.index
                               : c.kind != PERMUTE || c.destination == (int)member;
}

DEVICE bool wants(const device_call &c, uint32_t member)
{
    return c.kind == BROADCAST ? c.root == (int)member
                               : c.kind != PERMUTE || c.source == (int)member;
}

/* Where a rank has this thread's lines in the slots of its heap, for even turns; and how far
 * from there those of odd ones are, and line l. */
DEVICE char *slots_from(const device_call &c, uint64_t heap, uint32_t from)
{
    uint64_t first = ((uint64_t)from * DEVICE_SMALL_CTAS + CTA) * c.slot_lines;

    return (char *)heap + c.slots_at + (first * DEVICE_THREADS + THREAD) * 16;
}

DEVICE uint64_t odd_at(const device_call &c)
{
    return (uint64_t)c.world * DEVICE_SMALL_CTAS * c.slot_lines * DEVICE_THREADS * 16;
}

DEVICE uint64_t line_at(uint64_t odd, uint32_t turn, int l)
{
    return (turn & 1 ? odd : 0) + l * DEVICE_THREADS * 16;
}

DEVICE uint64_t tag_of(const device_call &c, uint32_t turn)
{
    return (uint64_t)c.hash << 32 | turn;
}

/* Up to 8 bytes, of any alignment. */
SLOW uint64_t load_odd(const char *at, uint32_t bytes)
{
    uint64_t word = 0;

    for (uint32_t i = 0; i < bytes; i++)
        word |= (uint64_t)((const volatile uint8_t *)at)[i] << 8 * i;
    return word;
}

SLOW void store_odd(char *at, uint32_t bytes, uint64_t word)
{
    for (uint32_t i = 0; i < bytes; i++)
        at[i] = (char)(word >> 8 * i);
}

DEVICE uint64_t load_some(const char *at, uint32_t bytes)
{
    if (bytes == 8 && (uint64_t)at % 8 == 0)
        return load_relaxed((const uint64_t *)at);
    return bytes > 0 ? load_odd(at, bytes) : 0;
}

DEVICE void store_some(char *at, uint32_t bytes, uint64_t word)
{
    if (bytes == 8 && (uint64_t)at % 8 == 0)
        *(uint64_t *)at = word;
    else if (bytes > 0)
        store_odd(at, bytes, word);
}

/* What a thread has of a block: pieces of 8 bytes, as far apart as all threads of the CTA
 * have; and how much of the block there is from the first on. */
struct share {
    uint64_t at;   /* the first, in bytes of the block */
    uint32_t left; /* bytes; 1 MiB stands for more */
    bool plain;    /* all pieces are whole words of memory */
};

DEVICE uint32_t piece_at(int l)
{
    return l * 8 * blockDim.x;
}

template <int L> DEVICE share own_share(const device_call &c)
{
    uint64_t at = ((uint64_t)CTA * L * blockDim.x + THREAD) * 8;
    uint64_t left = at < c.block ? c.block - at : 0;

    return share{at, left < 1u << 20 ? (uint32_t)left : 1u << 20,
                 left >= piece_at(L - 1) + 8 && (c.send | c.recv | c.block) % 8 == 0};
}

DEVICE uint32_t piece_bytes(const share &s, int l)
{
    uint32_t left = piece_at(l) < s.left ? s.left - piece_at(l) : 0;

    return left < 8 ? left : 8;
}

/* From N places at once: all loads are under way together. */
template <int L, int N>
DEVICE void load_shares(const uint64_t *from, const share &s, uint64_t (*words)[L])
{
    if (s.plain) {
#pragma unroll
        for (int i = 0; i < N * L; i++)
            words[i / L][i % L] =
                load_relaxed((const uint64_t *)(from[i / L] + s.at + piece_at(i % L)));
        return;
    }
#pragma unroll
    for (int i = 0; i < N * L; i++)
        words[i / L][i % L] =
            load_some((const char *)from[i / L] + s.at + piece_at(i % L), piece_bytes(s, i % L));
}

template <int L> DEVICE void load_share(const char *from, const share &s, uint64_t (&words)[L])
{
    uint64_t at = (uint64_t)from;

    load_shares<L, 1>(&at, s, &words);
}

template <int L> DEVICE void store_share(char *to, const share &s, const uint64_t *words)
{
#pragma unroll
    for (int l = 0; l < L; l++) {
        if (s.plain)
            *(uint64_t *)(to + s.at + piece_at(l)) = words[l];
        else
            store_some(to + s.at + piece_at(l), piece_bytes(s, l), words[l]);
    }
}

/* Whether line l goes to, or comes from, somebody for whom there is data. */
DEVICE bool has_line(const share &s, bool data, int l)
{
    return (data && piece_at(l) < s.left) || (l == 0 && THREAD == 0);
}

/* A rank that has failed sends no more: it may not have heard its peers, which may still read
 * what it would overwrite, or compare what it asked for with what it asks for now. The error
 * is looked at last, so that other loads do not wait for its. */
template <int L> DEVICE void small_send(const device_call &c, const share &s, uint32_t error)
{
    for (uint32_t k = 1; k < c.n; k++) {
        uint32_t p = c.index + k < c.n ? c.index + k : c.index + k - c.n;
        uint32_t turn = own_table(c)->counts[CTA][c.ranks[p]].slots + 1;
        bool data = gives(c, p);
        uint64_t words[L] = {};

        if (data)
            load_share<L>((const char *)c.send + (scatters(c) ? p * c.block : 0), s, words);
#pragma unroll
        for (int l = 0; l < L; l++) {
            if (has_line(s, data, l) && error == DEVICE_FINE)
                store_line(slots_from(c, c.heap[p], own_rank(c)) + line_at(odd_at(c), turn, l),
                           words[l], tag_of(c, turn));
        }
    }
    if (c.flags & DEVICE_EARLY)
        let_next_begin();
}

/* What `member` sent to this thread. */
template <int L>
DEVICE uint32_t small_take(const device_call &c, uint32_t member, const share &s, bool data,
                           uint64_t *words)
{
    uint32_t turn = own_table(c)->counts[CTA][c.ranks[member]].slots + 1;

    return spin(c, member, [&] {
        bool all = true;

#pragma unroll
        for (int l = 0; l < L; l++) {
            uint64_t tag;

            if (!has_line(s, data, l))
                continue;
            load_line(slots_from(c, c.table, c.ranks[member]) + line_at(odd_at(c), turn, l),
                      words[l], tag);
            all = all && tag == tag_of(c, turn);
        }
        return all;
    });
}

/* What a speaker has counted: small calls, and above them all calls; and where, 0: it is none. */
DEVICE uint64_t *spoken_at(const device_call &c)
{
    return speaks(c) ? (uint64_t *)&own_counts(c)->slots : nullptr;
}

/* The turns are counted once all threads have read them. */
DEVICE void small_end(const device_call &c, uint64_t *at, uint64_t spoken, uint32_t error)
{
    if (__syncthreads_or(error != DEVICE_FINE))
        poison(c);
    else if (at != nullptr)
        *at = ((spoken >> 32) + 1) << 32 | (uint32_t)(spoken + 1);
}

/* ---- reductions -------------------------------------------------------------------- */

/* Up to M of the other members, numbered without this one: their lines are under way
 * together. What is behind them is this one's own. */
template <int M> struct batch {
    bool there[M]; /* false: the last one again */
    /* Addresses: of the count of calls with it, of its slots and this rank's, of what it is
     * given. */
    uint64_t turns[M], to[M], from[M], give[M + 1];
};

DEVICE uint32_t other_member(const device_call &c, uint32_t number)
{
    return number < c.index ? number : number + 1;
}

DEVICE uint64_t given_to(const device_call &c, uint32_t member)
{
    return c.send + (scatters(c) ? member * c.block : 0);
}

/* Past the last there is the last again, so that loads need no branch. */
template <int M> DEVICE batch<M> batch_from(const device_call &c, uint32_t first)
{
    batch<M> b;

#pragma unroll
    for (int m = 0; m < M; m++) {
        uint32_t number = first + m < c.n - 1 ? first + m : c.n - 2;
        uint32_t p = other_member(c, number);

        b.there[m] = number == first + m;
        b.turns[m] = (uint64_t)&own_table(c)->counts[CTA][c.ranks[p]].slots;
        b.to[m] = (uint64_t)slots_from(c, c.heap[p], own_rank(c));
        b.from[m] = (uint64_t)slots_from(c, c.table, c.ranks[p]);
        b.give[m] = given_to(c, p);
    }
    b.give[M] = given_to(c, c.index);
    return b;
}

/* While the kernel before still runs: what is computed is not computed again. */
template <int M> DEVICE void settle_batch(batch<M> &b)
{
#pragma unroll
    for (int m = 0; m < M; m++) {
        touch((const void *)b.turns[m]);
        touch((const void *)b.to[m]);
        touch((const void *)b.from[m]);
        settle(b.turns[m]);
        settle(b.to[m]);
        settle(b.from[m]);
    }
#pragma unroll
    for (int m = 0; m <= M; m++)
        settle(b.give[m]);
}

template <int M> DEVICE void load_turns(const batch<M> &b, uint32_t *turn)
{
#pragma unroll
    for (int m = 0; m < M; m++)
        turn[m] = load_relaxed((const uint32_t *)b.turns[m]) + 1;
}

template <int L, int M>
DEVICE void send_batch(const device_call &c, const batch<M> &b, const share &s, uint64_t odd,
                       const uint32_t *turn, const uint64_t (*words)[L])
{
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int l = 0; l < L; l++) {
            if (b.there[m] && has_line(s, true, l))
                store_line((char *)b.to[m] + line_at(odd, turn[m], l), words[m][l],
                           tag_of(c, turn[m]));
        }
    }
}

template <int L, int M>
DEVICE uint32_t take_batch(const device_call &c, uint32_t first, const batch<M> &b, const share &s,
                           uint64_t odd, const uint32_t *turn, uint64_t (*words)[L])
{
    uint32_t missing = 0;

    return spin(c, missing, [&] {
        bool all = true;

#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int l = 0; l < L; l++) {
                uint64_t tag;

                if (!b.there[m] || !has_line(s, true, l))
                    continue;
                load_line((const char *)b.from[m] + line_at(odd, turn[m], l), words[m][l], tag);
                if (tag != tag_of(c, turn[m])) {
                    all = false;
                    missing = other_member(c, first + m);
                }
            }
        }
        return all;
    });
}

/* The sum in the order of the members: what is held comes as soon as the number of another
 * is this one's. */
template <class C, int L> struct ordered_sum {
    accumulator<C, 1> sum[L]; /* of the members before that */
    uint64_t held[L];         /* at first this member's own */

    __device__ __forceinline__ void add(const device_call &c, uint32_t number, uint64_t *words)
    {
#pragma unroll
        for (int l = 0; l < L; l++) {
            uint64_t next = number < c.index ? words[l] : held[l];

            held[l] = number < c.index ? held[l] : words[l];
            if (number == 0)
                sum[l].begin(&next);
            else
                sum[l].add(&next);
        }
    }
    __device__ __forceinline__ void end(uint64_t *words)
    {
#pragma unroll
        for (int l = 0; l < L; l++) {
            sum[l].add(&held[l]);
            sum[l].end(&words[l]);
        }
    }
};

/* Addresses are at hand and pages found before the wait: what comes after it is a load, a
 * store and the polls. */
template <class C, int L, int M> DEVICE void reduce_by(const device_call &c)
{
    const share s = own_share<L>(c);
    batch<M> b = batch_from<M>(c, 0);
    uint64_t at = (uint64_t)spoken_at(c), odd = odd_at(c), spoken = 0;
    ordered_sum<C, L> sum;
    uint64_t words[M + 1][L];
    uint32_t turn[M], error;

    settle_batch(b);
    settle(at);
    settle(odd);
    wait_for_last();
    load_turns(b, turn);
    error = load_relaxed(&own_table(c)->error);
    load_shares<L, M + 1>(b.give, s, words);
    if (at != 0)
        spoken = load_relaxed((const uint64_t *)at);
    if (error == DEVICE_FINE)
        send_batch<L>(c, b, s, odd, turn, words);
#pragma unroll
    for (int l = 0; l < L; l++)
        sum.held[l] = words[M][l];
#pragma unroll 1
    for (uint32_t first = M; first < c.n - 1 && error == DEVICE_FINE; first += M) {
        b = batch_from<M>(c, first);
        load_turns(b, turn);
        load_shares<L, M>(b.give, s, words);
        send_batch<L>(c, b, s, odd, turn, words);
    }
    if (c.flags & DEVICE_EARLY)
        let_next_begin();
    if (at != 0 && error == DEVICE_FINE) /* later than the data, which is waited for */
        announce(c, (uint32_t)(spoken >> 32));
#pragma unroll 1
    for (uint32_t first = 0; first < c.n - 1 && error == DEVICE_FINE; first += M) {
        if (c.n - 1 > M) {
            b = batch_from<M>(c, first);
            load_turns(b, turn);
        }
        error = take_batch<L>(c, first, b, s, odd, turn, words);
#pragma unroll
        for (int m = 0; m < M; m++) {
            if (b.there[m])
                sum.add(c, first + m, words[m]);
        }
    }
    sum.end(words[0]);
    if (error == DEVICE_FINE)
        store_share<L>((char *)c.recv, s, words[0]);
    small_end(c, (uint64_t *)at, spoken, error);
}

/* all_reduce and reduce_scatter of at most 8-byte elements, by two members or more. */
template <class C, int L> DEVICE void small_reduce(const device_call &c)
{
    if (L > 1 || c.n == 2)
        reduce_by<C, L, 1>(c);
    else
        reduce_by<C, L, 3>(c);
}

/* ---- copies ------------------------------------------------------------------------ */

/* All that only copies. */
template <int L> DEVICE void small_copy(const device_call &c)
{
    const share s = own_share<L>(c);
    uint64_t *at = spoken_at(c), spoken = 0;
    bool each = c.kind == ALL_GATHER || c.kind == ALL_TO_ALL;
    uint32_t error;
    uint64_t mine[L] = {};

    follow(c);
    if (at != nullptr)
        spoken = load_relaxed(at);
    error = load_relaxed(&own_table(c)->error);
    /* A barrier: what the stream did before it, all see after it. Thread 0 speaks alone. */
    if (c.kind == BARRIER && THREAD == 0)
        __threadfence_system();
    if (wants(c, c.index))
        load_share<L>((const char *)c.send + (scatters(c) ? c.index * c.block : 0), s, mine);
    small_send<L>(c, s, error);
    if (at != nullptr && error == DEVICE_FINE)
        announce(c, (uint32_t)(spoken >> 32));
    if (c.kind == PERMUTE && c.source < 0) {
        const uint64_t none[L] = {};

        store_share<L>((char *)c.recv, s, none);
    }
    for (uint32_t p = 0; p < c.n && error == DEVICE_FINE; p++) {
        bool data = wants(c, p);
        char *recv = (char *)c.recv + (each ? p * c.block : 0);
        uint64_t words[L];

        if (p == c.index) {
            if (data)
                store_share<L>(recv, s, mine);
            continue;
        }
        error = small_take<L>(c, p, s, data, words);
        if (data && error == DEVICE_FINE)
            store_share<L>(recv, s, words);
    }
    if (c.kind == BARRIER && THREAD == 0)
        __threadfence_system();
    small_end(c, at, spoken, error);
}

#endif
