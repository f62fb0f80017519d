"""SIGKILL of process 1 while kernels of all processes spin or move data: jax_killed.py. The
others get an error that names it, in bounded time, and their results are poisoned; what else
survives is printed as rows."""

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax_common import finalize_within, outlive_process_1, own, sharded, spread, start

COUNT = 1 << 20
SECONDS = 20.0  # the death must be known by then; the deadline is far beyond


def chain(v):
    for _ in range(20):
        v = oriel.all_reduce(v, "x") * 0.5
    return v


def check_whole(array):
    """All of it is poisoned, or nothing."""
    lost = np.isnan(array).sum()
    assert lost in (0, array.size), f"{lost} elements of {array.size} are poisoned"


def survives(what, function):
    try:
        function()
    except Exception as error:  # whatever JAX says
        print(f"row {what} ok does not survive: {str(error)[:100]!r}", flush=True)
        return
    print(f"row {what} ok survives", flush=True)


def main():
    mesh = start(timeout=120.0)
    step = sharded(mesh, chain, check_vma=False)
    x = spread(mesh, np.ones((oriel.size(), COUNT), np.float32))
    y = outlive_process_1(step, jax.block_until_ready(step(x)), SECONDS)
    survives("what was there before", lambda: check_whole(own(y)))
    survives("the context", lambda: check_whole(np.asarray(jnp.arange(10.0) + 1)))
    finalize_within(SECONDS)


main()
