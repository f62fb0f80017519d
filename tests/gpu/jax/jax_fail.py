"""A rank that never calls: the others get an error that names it, their results are
poisoned, JAX goes on, and a new world works. jax_fail.py [sync]: the call itself raises,
for which ORIEL_SYNC=1 must be set."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax_common import failure_of, own, row, sharded, spread, start, wait_for

TIMEOUT = 2.0


def has_failed():
    try:
        oriel.check()
    except oriel.OrielError:
        return True
    return False


def check_message(text):
    assert "all_reduce" in text and "rank 1" in text and f"{TIMEOUT:.1f} s" in text, text


def never_comes(mesh, sync):
    """Rank 1 stays away."""
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"), check_vma=False)
    x = spread(mesh, np.ones((oriel.size(), 1000), np.float32))
    jax.block_until_ready(step(x))
    if oriel.rank() != 1:
        if sync:
            check_message(failure_of(lambda: jax.block_until_ready(step(x))))
            row("the call raises")
        else:
            assert np.isnan(own(step(x))).all()
            row("poisoned")
            check_message(failure_of(lambda: jax.block_until_ready(step(x))))
            row("the next call raises")
            check_message(failure_of(oriel.check))
            row("check raises")
    else:
        wait_for(has_failed, 10 * TIMEOUT)
        check_message(failure_of(oriel.check))
        row("the absent one knows")
    assert float(jnp.arange(10.0).sum()) == 45.0
    oriel.finalize()
    row("JAX goes on")


def unseen(mesh):
    """Nobody looks: finalize says it."""
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"), check_vma=False)
    x = spread(mesh, np.ones((oriel.size(), 1000), np.float32))
    jax.block_until_ready(step(x))
    if oriel.rank() != 1:
        step(x)
        check_message(failure_of(oriel.finalize))
    else:
        wait_for(has_failed, 10 * TIMEOUT)
        oriel.finalize()
    row("finalize raises")


def main(sync):
    never_comes(start(timeout=TIMEOUT), sync)
    if not sync:
        unseen(start(timeout=TIMEOUT))
    mesh = start(timeout=20)
    x = np.arange(oriel.size() * 3.0, dtype=np.float32).reshape(-1, 3)
    total = sharded(mesh, lambda v: oriel.all_reduce(v, "x"), check_vma=False)(spread(mesh, x))
    np.testing.assert_array_equal(own(total)[0], x.sum(0))
    oriel.finalize()
    row("a new world")


main("sync" in sys.argv[1:])
