"""Many independent operations, dispatched without waiting, in no order.

    order.py ITERATIONS [DEVICES]

Two programs alternate; each has 16 operations of all kinds that depend on nothing."""

import sys

import jax
import numpy as np
import oriel
from common import make_mesh, report, sharded, spread
from jax.sharding import PartitionSpec as P

CALLS = 16
KINDS = 6


def call(k, n, v):
    """Operation number k on one row."""
    return (
        lambda: oriel.all_reduce(v, "x"),
        lambda: oriel.all_gather(v, "x", tiled=True),
        lambda: oriel.reduce_scatter(v.repeat(n, 0), "x", tiled=True),
        lambda: oriel.all_to_all(v.repeat(n, 0), "x", 0, 0, tiled=True),
        lambda: oriel.broadcast(v, "x", root=k % n),
        lambda: oriel.permute(v, "x", [(i, (i + k) % n) for i in range(n)]),
    )[k % KINDS]()


def expected(k, n, x):
    """All devices' results of operation number k, one after the other."""
    total, everything = np.tile(x.sum(0), (n, 1)), np.tile(x, (n, 1))
    return (total, everything, total, everything, x[[k % n] * n], np.roll(x, k, 0))[k % KINDS]


def main():
    iterations = int(sys.argv[1])
    if len(sys.argv) > 2:
        jax.config.update("jax_num_cpu_devices", int(sys.argv[2]))
    oriel.init()
    n = oriel.size()
    mesh = make_mesh((n,), ("x",))

    def many(scale, v):
        return [call(k, n, v * (k + scale)) for k in range(CALLS)]

    steps = [sharded(mesh, lambda v, s=s: many(s, v), P("x"), P("x")) for s in (1, 100)]
    x = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
    tables = [expected(k, n, x) for k in range(CALLS)]
    operand = spread(mesh, x, P("x"))
    for start in range(0, iterations, 50):
        results = [steps[i % 2](operand) for i in range(start, min(start + 50, iterations))]
        for i, outputs in enumerate(results):
            scale = (1, 100)[(start + i) % 2]
            for k, output in enumerate(outputs):
                for shard in output.addressable_shards:
                    wanted = tables[k][shard.index] * (k + scale)
                    np.testing.assert_array_equal(shard.data, wanted)
    report(ok=True, iterations=iterations, ranks=n)


main()
