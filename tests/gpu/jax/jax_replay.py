"""Chained and independent calls in one program, replayed with new buffers between, and
what a call costs the host: jax_replay.py [RUNS]. XLA captures such programs in graphs.

jax_replay.py early: small calls, behind each of which XLA has a kernel that takes all of the GPU,
and launches it so that it may begin while the one before it still runs. It must not while that
waits for a rank that shares the GPU, which would find no room to come."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax_common import own, poison, row, sharded, spread, start

CHAIN = 12
# Of f32: one thread block; sixteen; with 3 ranks thirteen with several lines for each thread.
SMALL = 7, 4000, 50001
LARGE = 16 << 20  # elements, at most four for each thread: more threads than a GPU has room for
LATE = 0.3  # seconds


def chain(v):
    for _ in range(CHAIN):
        v = oriel.all_reduce(v, "x") * 0.5
    return v


def check_chain(mesh, count, runs, rng):
    """Each run begins with what another left, at addresses that move."""
    n = oriel.size()
    step = sharded(mesh, chain, check_vma=False)
    kept = []
    for run in range(runs):
        if run % 10 == 0:
            poison(8, 2)
        x = rng.integers(-1000, 1000, (n, count)).astype(np.float32)  # sums are exact
        got = own(step(spread(mesh, x)))
        wanted = x.astype(np.float64).sum(0) * 0.5 * (n * 0.5) ** (CHAIN - 1)
        np.testing.assert_array_equal(got[0], wanted, err_msg=f"run {run} of {count}")
        kept.append(jnp.zeros(rng.integers(1, 2 * count), jnp.float32))
        if len(kept) > 5:
            kept.pop(rng.integers(5))
    row(f"chain of {4 * count} bytes")


def check_independent(mesh, runs, rng):
    """Calls that nothing orders but the program."""
    n, me = oriel.size(), oriel.rank()

    def many(v):
        v = v[0]
        gathered = oriel.all_gather(v, "x")
        total = oriel.all_reduce(v + 1, "x")
        least = oriel.all_reduce(v - 1, "x", "min")
        moved = oriel.permute(v * 2, "x", [(i, (i + 1) % n) for i in range(n)])
        most = oriel.all_reduce(v, "x", "max")
        return jax.tree.map(lambda a: a[None], (gathered, total, least, moved, most))

    step = sharded(mesh, many, check_vma=False)
    for _ in range(runs):
        x = rng.integers(-1000, 1000, (n, 3000)).astype(np.float32)
        wanted = (x, (x + 1).sum(0), (x - 1).min(0), x[(me - 1) % n] * 2, x.max(0))
        for got, want in zip(step(spread(mesh, x)), wanted, strict=True):
            np.testing.assert_array_equal(own(got)[0], want)
    row("independent calls")


def check_in_flight(mesh, runs, rng):
    """Two programs, started in turn without waiting for either."""
    n = oriel.size()
    x = rng.integers(-5, 5, (n, 2000)).astype(np.float32)
    y = rng.integers(-5, 5, (n, 300000)).astype(np.float32)
    first = sharded(mesh, lambda v: oriel.all_reduce(v, "x") * (1 / n), check_vma=False)
    second = sharded(mesh, lambda v: oriel.all_reduce(v, "x", "max"), check_vma=False)
    a, b = spread(mesh, x), spread(mesh, y)
    for _ in range(runs):
        a, b = first(a), second(b)
    np.testing.assert_allclose(own(a)[0], x.astype(np.float64).mean(0), rtol=1e-5)
    np.testing.assert_array_equal(own(b)[0], y.max(0))
    row("two programs in flight")


def check_host(mesh):
    """A call returns while a peer is late."""
    n, me = oriel.size(), oriel.rank()
    step = sharded(mesh, chain, check_vma=False)
    x = spread(mesh, np.ones((n, 1000), np.float32))
    for _ in range(5):
        jax.block_until_ready(step(x))
    times = []
    for _ in range(50):
        began = time.perf_counter()
        y = step(x)
        times.append(time.perf_counter() - began)
        jax.block_until_ready(y)
    print(f"host {1e6 * np.median(times):.0f} us to start {CHAIN} calls", flush=True)
    if me == 1:
        time.sleep(1.0)  # late on purpose
    began = time.perf_counter()
    y = step(x)
    took = time.perf_counter() - began
    jax.block_until_ready(y)
    assert took < 0.2, f"the call took {took} s: it waited for a rank that was late"
    print(f"host {1e6 * took:.0f} us to start them while a peer is late", flush=True)
    row("a late peer")


def behind(small, large):
    """The kernel needs the call's result, so nothing comes between the two."""
    total = oriel.all_reduce(small, "x")
    return total, large * total[:, :1] + 1


def beside(small, large):
    """As in trees: neither calls nor kernels need each other."""
    return jax.tree.map(
        lambda v: (oriel.all_reduce(v, "x"), oriel.all_gather(v[0], "x")[None], large * v[0, 0]),
        [small * k for k in range(1, 5)],
    )


def check_early(mesh, count, function, turns=6):
    """In each turn another rank is late."""
    n, me = oriel.size(), oriel.rank()
    x = np.arange(n * count, dtype=np.float32).reshape(n, count) % 8
    large = np.broadcast_to(np.arange(n, dtype=np.float32)[:, None], (n, LARGE))
    operands = spread(mesh, x), spread(mesh, large)
    step = sharded(mesh, function, check_vma=False)
    for turn in range(turns):
        if turn % n == me:
            time.sleep(LATE)
        total, *_ = jax.tree.leaves(jax.block_until_ready(step(*operands)))
        np.testing.assert_array_equal(own(total)[0], x.sum(0), err_msg=f"turn {turn}")
    row(f"large kernels {function.__name__} calls of {4 * count} bytes")


def main_early():
    mesh = start(timeout=10)
    for count in SMALL:
        check_early(mesh, count, behind)
        check_early(mesh, count, beside)
    oriel.check()
    oriel.finalize()
    row("end")


def main(runs):
    mesh = start(timeout=20)
    rng = np.random.default_rng(1)
    check_chain(mesh, 1000, runs, rng)
    check_chain(mesh, 400000, runs // 4, rng)
    check_independent(mesh, runs, rng)
    check_in_flight(mesh, runs, rng)
    check_host(mesh)
    oriel.check()
    oriel.finalize()
    row("end")


if sys.argv[1:] == ["early"]:
    main_early()
else:
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
