"""Kernels of one's own on GPUs: the examples' all-reduces, with the bits of
oriel.all_reduce, replayed, on the callers' buffers or on copies, the same on all ranks;
kernels that fail: jax_kernel.py [right], without the last."""

import os
import pathlib
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax.sharding import PartitionSpec as P
from jax_common import own, poison, row, sharded, spread, start, wait_for

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
STAGED = os.environ.get("ORIEL_DIRECT") == "0"
OWN = """#include <oriel/kernel.h>
/* The sum of a + b, and where this rank has `a`. */
ORIEL_KERNEL(look)(oriel_team *team, const float *a, const float *b, float *sum, uint32_t *at)
{
    oriel_for_each (i, team, oriel_count(team, a)) {
        float s = 0;
        for (int r = 0; r < oriel_size(team); r++)
            s += oriel_peer(team, a, r)[i] + oriel_peer(team, b, r)[i];
        sum[i] = s;
    }
    if (oriel_thread(team) == 0) {
        at[0] = (uint32_t)(uint64_t)a;
        at[1] = (uint32_t)((uint64_t)a >> 32);
    }
}
ORIEL_KERNEL(waits)(oriel_team *team, const float *x, float *y, int who)
{
    if (who < 0 || who == oriel_rank(team))
        oriel_wait(team, 3, 1);
    oriel_for_each (i, team, oriel_count(team, x)) {
        y[i] = x[i];
    }
}
/* Every rank writes into everybody's result, then all wait and read it. */
ORIEL_KERNEL(ring)(oriel_team *team, const int32_t *x, int32_t *all, int32_t *got)
{
    size_t n = oriel_count(team, x), ranks = (size_t)oriel_size(team), me = (size_t)oriel_rank(team);

    for (int r = 0; r < oriel_size(team); r++)
        oriel_put(team, r, all + me * n, x, oriel_bytes(team, x));
    oriel_team_sync(team);
    if (oriel_thread(team) == 0)
        oriel_signal(team, (int)((me + 1) % ranks), 5, 1);
    oriel_wait(team, 5, 1);
    oriel_barrier_all(team);
    oriel_for_each (i, team, n) {
        got[i] = all[(me + 1) % ranks * n + i];
    }
}
"""


def check_sums(mesh, count, runs):
    mine = oriel.kernel(EXAMPLES / "07_my_all_reduce" / "my_all_reduce.cu")
    rng = np.random.default_rng(count)

    def step(v):
        v = v[0]
        twice = mine.one_shot(v, scale=2.0, axis_name="x")
        once = mine.two_shot(v, axis_name="x")
        again = mine.two_shot(once, axis_name="x")
        return twice[None], once[None], again[None], oriel.all_reduce(v, "x")[None]

    program = sharded(mesh, step, check_vma=False)
    for run in range(runs):
        if run % 10 == 0:
            poison(8, 2)
        x = rng.normal(size=(oriel.size(), count)).astype(np.float32)
        twice, once, again, total = map(own, program(spread(mesh, x)))
        np.testing.assert_array_equal(once, total, err_msg=f"run {run}")
        np.testing.assert_array_equal(twice, 2 * total)
        np.testing.assert_array_equal(again, total * oriel.size())
        wanted = x.astype(np.float64).sum(0)
        np.testing.assert_allclose(total[0], wanted, rtol=1e-5, atol=1e-5)
    row(f"sums of {count} elements")


class Looks:
    """Calls of `look`, each with a new array; whether they went direct."""

    def __init__(self, mesh, look, count):
        self.mesh, self.count = mesh, count
        self.rng = np.random.default_rng(count)
        out = (jax.ShapeDtypeStruct((count,), np.float32), jax.ShapeDtypeStruct((2,), np.uint32))

        def step(a, b):
            total, at = look(a[0], b[0], axis_name="x", out=out)
            return total[None], at[None]

        self.step = sharded(mesh, step, (P("x"), P("x")), check_vma=False)
        self.gather = sharded(mesh, lambda v: oriel.all_gather(v, "x"), check_vma=False)

    def run(self, twice=False):
        n = oriel.size()
        x, y = (self.rng.integers(-9, 9, (n, self.count)).astype(np.float32) for _ in range(2))
        a = spread(self.mesh, x)
        b = a if twice else spread(self.mesh, y)
        total, at = self.step(a, b)
        np.testing.assert_array_equal(own(total)[0], (x + (x if twice else y)).sum(0))
        low, high = map(int, own(at)[0])
        direct = high << 32 | low == a.addressable_shards[0].data.unsafe_buffer_pointer()
        ways = own(self.gather(spread(self.mesh, np.full((n, 1), direct, np.int32))))
        assert (ways == direct).all(), f"not the same way on all ranks: {ways}"
        return direct, a


def check_ways(mesh, look):
    """Rank 1 keeps what it gets, so its buffers are new again and again: others have not
    mapped them yet."""
    looks = Looks(mesh, look, 1 << 21)
    ways, kept = [], []
    while len(ways) < 40 or not (STAGED or ways[-1] or len(ways) == 400):
        direct, a = looks.run()
        ways.append(direct)
        if oriel.rank() == 1 and len(ways) < 30:
            kept += [a, jnp.zeros(1 << 22, jnp.float32)]
    print("ways " + "".join("d" if way else "s" for way in ways), flush=True)
    assert not any(ways) if STAGED else ways[-1], ways
    row("never direct" if STAGED else "direct in the end")
    if "ORIEL_GPU_ARENA" not in os.environ:
        assert not any(looks.run(twice=True)[0] for _ in range(3))
        row("an array passed twice")


def check_ring(mesh, ring, count, runs):
    n, me = oriel.size(), oriel.rank()
    out = (jax.ShapeDtypeStruct((n, count), np.int32), jax.ShapeDtypeStruct((count,), np.int32))

    def step(v):
        everything, got = ring(v[0], axis_name="x", out=out)
        return everything[None], got[None]

    program = sharded(mesh, step, check_vma=False)
    rng = np.random.default_rng(count)
    for _ in range(runs):
        x = rng.integers(-(2**31), 2**31 - 1, (n, count), dtype=np.int32)
        everything, got = map(own, program(spread(mesh, x)))
        np.testing.assert_array_equal(everything[0], x)
        np.testing.assert_array_equal(got[0], x[(me + 1) % n])
    row(f"a ring of {count} elements")


def failure():
    try:
        oriel.check()
    except oriel.OrielError as error:
        return str(error)
    return ""


def check_waits(mesh, waits, who):
    """Waits for a signal that nobody sends: on all ranks, or on one."""
    step = sharded(mesh, lambda v: waits(v, who=who, axis_name="x"), check_vma=False)
    x = spread(mesh, np.ones((oriel.size(), 100), np.float32))
    assert np.isnan(own(step(x))).all()
    wait_for(failure, 10)
    assert "kernel waits" in failure() and "2.0 s" in failure(), failure()
    oriel.finalize()
    row("a kernel that never ends" + (" on one rank" if who >= 0 else ""))


def check_absent(mesh, look):
    """Rank 1 does not come, once everybody goes direct."""
    looks = Looks(mesh, look, 1 << 18)
    for _ in range(20):
        looks.run()
    x, y = (spread(mesh, np.ones((oriel.size(), 1 << 18), np.float32)) for _ in range(2))
    if oriel.rank() != 1:
        assert np.isnan(own(looks.step(x, y)[0])).all()
    wait_for(failure, 20)
    assert "kernel look" in failure() and "rank 1" in failure(), failure()
    assert float(jnp.arange(10.0).sum()) == 45.0
    oriel.finalize()
    row("a rank that does not come")


def main(fail):
    mesh = start(timeout=20)
    check_sums(mesh, 1000, 50)
    check_sums(mesh, 1 << 20, 20)
    check_sums(mesh, 1003, 5)
    with tempfile.TemporaryDirectory() as folder:  # they are compiled when they are called
        path = pathlib.Path(folder, "own.cu")
        path.write_text(OWN)
        mine = oriel.kernel(path)
        check_ring(mesh, mine.ring, 5000, 20)
        check_ways(mesh, mine.look)
        oriel.check()
        oriel.finalize()
        if fail:
            check_waits(start(timeout=2.0), mine.waits, -1)
            check_waits(start(timeout=2.0), mine.waits, 0)
            check_absent(start(timeout=5.0), mine.look)
    if fail:
        check_sums(start(timeout=20), 1000, 3)
        oriel.finalize()
    row("end")


main("right" not in sys.argv[1:])
