"""Kernels that fail, one world each; then one that does not.

kernel_fail.py KERNEL ..."""

import sys

import jax
import numpy as np
import oriel
from common import local_parts, make_mesh, report, sharded, spread
from jax.sharding import PartitionSpec as P
from kernels import KERNELS, several


def run(kernel):
    oriel.init(timeout=0.5 if kernel.name in ("never_signals", "lonely_barrier") else 60.0)
    mesh = make_mesh((jax.device_count(),), ("x",))
    x = spread(mesh, np.ones(4 * jax.device_count(), np.float32), P("x"))
    raised = None
    try:
        y = sharded(mesh, lambda v: kernel(v, axis_name="x"), P("x"), P("x"))(x)
        local_parts(y)
    except Exception as error:
        raised = str(error)
    report(kernel=kernel.name, raised=raised)
    oriel.finalize()


def main():
    wrong = oriel.kernel(KERNELS / "wrong.cu")
    for name in sys.argv[1:]:
        run(getattr(wrong, name))
    run(several("float32", "SUM").reduce)


main()
