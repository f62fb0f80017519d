"""Many independent all-reduces, dispatched without waiting, in no order.

    order.py ITERATIONS [DEVICES]

Two programs alternate; each has 16 all-reduces that depend on nothing."""

import sys

import jax
import numpy as np
import oriel
from common import local_parts, make_mesh, report, sharded, spread
from jax.sharding import PartitionSpec as P

CALLS = 16


def main():
    iterations = int(sys.argv[1])
    if len(sys.argv) > 2:
        jax.config.update("jax_num_cpu_devices", int(sys.argv[2]))
    oriel.init()
    n = oriel.size()
    mesh = make_mesh((n,), ("x",))

    def many(scale, v):
        return [oriel.all_reduce(v * (i + scale), "x") for i in range(CALLS)]

    steps = [sharded(mesh, lambda v, s=s: many(s, v)) for s in (1, 100)]
    x = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
    total = x.sum(0)
    operand = spread(mesh, x, P("x"))
    for start in range(0, iterations, 50):
        results = [steps[i % 2](operand) for i in range(start, min(start + 50, iterations))]
        for i, outputs in enumerate(results):
            scale = (1, 100)[(start + i) % 2]
            for k, output in enumerate(outputs):
                for part in local_parts(output):
                    np.testing.assert_array_equal(part[0], total * (k + scale))
    report(ok=True, iterations=iterations, ranks=n)


main()
