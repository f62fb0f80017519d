"""Process 1 comes to its end while a program that it started still runs, and
process 0 waits for the result."""

import time

import jax.numpy as jnp
import numpy as np
import oriel
from common import local_parts, make_mesh, report, sharded, spread
from jax import lax
from jax.sharding import PartitionSpec as P


def function(v):
    for _ in range(5):
        v = lax.fori_loop(0, 100, lambda _, a: jnp.sin(a), v - 1) + 1
        v = oriel.all_reduce(v, "x", "max")
    return v


def main():
    oriel.init()
    n = oriel.size()
    mesh = make_mesh((n,), ("x",))
    operand = spread(mesh, np.ones((n, 1 << 18), np.float32), P("x"))
    got = sharded(mesh, function).lower(operand).compile()(operand)
    report(ok=True, returned=time.monotonic())
    if oriel.process_id() == 0:
        for part in local_parts(got):
            np.testing.assert_array_equal(part, 1)
        report(seen=time.monotonic())


main()
