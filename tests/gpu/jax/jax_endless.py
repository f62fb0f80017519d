"""A kernel of one's own that never ends, nor looks for anything: finalize says so after the
deadline, and leaves: jax_endless.py FOLDER. Nothing else on this GPU can be expected then."""

import os
import pathlib
import sys
import time

import jax
import numpy as np
import oriel
from jax_common import row, sharded, spread, start, wait_for

TIMEOUT = 3.0
ENDLESS = """#include <oriel/kernel.h>
ORIEL_KERNEL(endless)(oriel_team *team, const float *x, float *y)
{
    volatile const float *seen = x;

    while (seen[0] == 1.0f) {
    }
    oriel_for_each (i, team, oriel_count(team, x)) {
        y[i] = x[i];
    }
}
"""


def main(folder):
    mesh = start(timeout=TIMEOUT)
    me = oriel.rank()
    path = pathlib.Path(folder, f"endless_{me}.cu")
    path.write_text(ENDLESS)
    others = [pathlib.Path(folder, f"ended_{r}") for r in range(1, oriel.size())]
    endless = oriel.kernel(path)
    step = sharded(mesh, lambda v: endless(v, axis_name="x"), check_vma=False)
    # Another program first: what is named is what does not end.
    total = sharded(mesh, lambda v: oriel.all_reduce(v, "x"), check_vma=False)
    x = spread(mesh, np.ones((oriel.size(), 100), np.float32))
    jax.block_until_ready(total(x))
    began = time.monotonic()
    y = step(x)
    try:
        oriel.finalize()
    except oriel.OrielError as error:
        took = time.monotonic() - began
        assert "kernel endless" in str(error) and f"{TIMEOUT:.1f} s" in str(error), error
    else:
        raise AssertionError("finalize raised nothing")
    assert TIMEOUT <= took < TIMEOUT + 10, took
    assert not y.is_ready()
    row("finalize leaves a kernel that never ends")
    if me == 0:  # the others' JAX needs it
        wait_for(lambda: all(other.exists() for other in others), 20)
    else:
        others[me - 1].touch()
    os._exit(0)  # JAX would wait for the kernel


main(sys.argv[1])
