"""A program that has run goes into the next world, its graphs too: jax_renew.py [moved]. `moved`:
the heaps lie elsewhere there, so that jitted functions are compiled anew, and what was compiled
ahead of time is refused if XLA had captured it."""

import os
import sys

import jax
import numpy as np
import oriel
from jax_common import failure_of, own, row, sharded, spread, start

RUNS = 5  # more than XLA needs to capture


def chain(v):
    for _ in range(6):
        v = oriel.barrier(oriel.all_reduce(v, "x") * 0.5, "x")
    return v


def check(mesh, step):
    n = oriel.size()
    for run in range(RUNS):
        x = np.arange(n * 1000, dtype=np.float32).reshape(n, -1) + run
        wanted = x.astype(np.float64).sum(0) * 0.5 * (n * 0.5) ** 5
        np.testing.assert_array_equal(own(step(spread(mesh, x)))[0], wanted)


def main(moved):
    mesh = start(timeout=20)
    step = sharded(mesh, chain, check_vma=False)
    check(mesh, step)
    ahead = step.lower(spread(mesh, np.zeros((oriel.size(), 1000), np.float32))).compile()
    check(mesh, ahead)
    oriel.finalize()
    row("one world")
    if moved:
        os.environ["ORIEL_GPU_STAGE"] = "8M"
    compiled.clear()
    mesh = start(timeout=20)
    if not moved:
        check(mesh, ahead)
        check(mesh, step)
        assert not compiled, compiled
        row("nothing was compiled")
    else:
        x = spread(mesh, np.ones((oriel.size(), 1000), np.float32))
        for _ in range(2):  # it stays so
            said = failure_of(lambda: jax.block_until_ready(ahead(x)))
            assert "captured in a CUDA graph in a world that has been finalized" in said, said
        row("a graph of a world that is gone is refused")
    check(mesh, step)
    oriel.check()
    oriel.finalize()
    row("the next world")


compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
)
main("moved" in sys.argv[1:])
