"""A host function that fails on one rank: op_fail.py LIBRARY"""

import sys

import jax
import numpy as np
import oriel
from common import local_parts, make_mesh, report, sharded, spread
from jax.sharding import PartitionSpec as P


def main():
    oriel.init(timeout=60.0)
    refuse = oriel.op(sys.argv[1], "refuse")
    mesh = make_mesh((jax.device_count(),), ("x",))
    x = spread(mesh, np.ones(2 * jax.device_count(), np.float32), P("x"))
    raised = None
    try:
        local_parts(sharded(mesh, lambda v: refuse(v, axis_name="x"), P("x"), P("x"))(x))
    except Exception as error:
        raised = str(error)
    report(raised=raised)
    oriel.finalize()


main()
