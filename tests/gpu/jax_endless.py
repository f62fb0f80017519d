"""A kernel of one's own that never ends, nor looks for anything: finalize says so after the
deadline, and leaves. Nothing else on this GPU can be expected then."""

import os
import pathlib
import tempfile
import time

import jax
import numpy as np
import oriel
from jax_common import row, sharded, spread, start

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
    path = pathlib.Path(folder, "endless.cu")
    path.write_text(ENDLESS)
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
    os._exit(0)  # JAX would wait for it


with tempfile.TemporaryDirectory() as scratch:
    main(scratch)
