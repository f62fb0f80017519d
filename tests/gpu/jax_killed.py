"""SIGKILL of process 1 while kernels of all processes spin or move data: jax_killed.py. The
others get an error that names it, in bounded time, and their results are poisoned; what else
survives is printed as rows."""

import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax_common import own, row, sharded, spread, start

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
    n, me = oriel.size(), oriel.rank()
    step = sharded(mesh, chain, check_vma=False)
    x = spread(mesh, np.ones((n, COUNT), np.float32))
    y = jax.block_until_ready(step(x))
    began = time.monotonic()
    if me == 1:
        for _ in range(40):
            y = step(y)
        assert not y.is_ready(), "nothing was in flight"
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while time.monotonic() - began < SECONDS:
            y = jax.block_until_ready(step(y))
    except Exception as error:
        text = str(error)
    else:
        sys.exit("nothing was raised")
    took = time.monotonic() - began
    assert "process 1" in text and "is gone" in text, text
    print(f"row a death is named after {took:.1f} s ok", flush=True)
    survives("what was there before", lambda: check_whole(own(y)))
    survives("the context", lambda: check_whole(np.asarray(jnp.arange(10.0) + 1)))
    began = time.monotonic()
    oriel.finalize()
    took = time.monotonic() - began
    assert took < SECONDS, f"finalize took {took} s"
    row(f"finalize after {took:.1f} s")


main()
