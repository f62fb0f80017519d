"""axis_index_groups whose groups cross processes: across.py, of two processes with four devices."""

import numpy as np
import oriel
from common import make_mesh, report, sharded, spread
from jax.sharding import PartitionSpec as P

UNEVEN = [[5, 0, 3], [1], [7, 2, 4, 6]]
EVEN = [[5, 0], [3, 1], [7, 2], [4, 6]]


def on_members(table, groups, function):
    """`function` of each group's rows makes a row for each member."""
    results = [function(table[group]) for group in groups]
    return np.concatenate(results)[np.argsort(np.concatenate(groups))]


def main():
    oriel.init()
    table = np.arange(8 * 6, dtype=np.float32).reshape(8, 2, 3) ** 2

    def function(v):
        even = {"axis_index_groups": EVEN}
        results = [
            oriel.all_reduce(v[0], "x", axis_index_groups=UNEVEN),
            oriel.all_gather(v[0], "x", **even),
            oriel.reduce_scatter(v[0], "x", **even),
            oriel.all_to_all(v[0], "x", 0, 0, **even),
        ]
        return [y[None] for y in results]

    mesh = make_mesh((8,), ("x",))
    got = sharded(mesh, function, P("x"), P("x"))(spread(mesh, table, P("x")))
    wanted = [
        on_members(table, UNEVEN, lambda part: np.stack([part.sum(0)] * len(part))),
        on_members(table, EVEN, lambda part: np.stack([part] * len(part))),
        on_members(table, EVEN, lambda part: part.sum(0)),
        on_members(table, EVEN, lambda part: part.swapaxes(0, 1)),
    ]
    for ours, rows in zip(got, wanted, strict=True):
        for shard in ours.addressable_shards:
            np.testing.assert_array_equal(shard.data, rows[shard.index])
    report(ok=True)


main()
