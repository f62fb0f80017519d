"""All operations between processes, against NumPy: family.py CASES SEED"""

import sys

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import make_mesh, report, sharded, spread
from jax.sharding import PartitionSpec as P

jax.config.update("jax_enable_x64", True)


def check_cases(number, seed):
    """One program for each mesh: what takes time here is compiling. XLA of jax 0.11.2
    crashes where an empty array is one input of several: each is alone."""
    rng = np.random.default_rng(seed)

    def pick(options):
        return options[rng.integers(len(options))]

    drawn = [cases.draw_case(pick, op) for op in cases.OPERATIONS for _ in range(number)]
    meshes = {}
    for i, case in enumerate(drawn):
        alone = i if 0 in case.shape else None
        meshes.setdefault((case.mesh_shape, case.names, case.order, alone), []).append(case)
    for (shape, names, order, _), some in meshes.items():
        mesh = make_mesh(shape, tuple(names), list(order))
        parts = [case.draw(seed + i) for i, case in enumerate(some)]
        step = sharded(
            mesh,
            lambda vs, some=some: [case.ours(v) for case, v in zip(some, vs, strict=True)],
            P(*names),
            P(*names),
        )
        results = step([spread(mesh, p, P(*names)) for p in parts])
        for case, part, result in zip(some, parts, results, strict=True):
            check_shards(case, result, case.expected(part))


def check_shards(case, result, expected):
    loose = expected.dtype.kind == "c" and case.arguments.get("op") == "prod"
    for shard in result.addressable_shards:
        got, wanted = np.asarray(shard.data), expected[shard.index]
        if got.dtype.kind == "V" or got.dtype.name in cases.NARROW:
            got, wanted = got.astype(np.float32), wanted.astype(np.float32)
        if loose:
            np.testing.assert_allclose(got, wanted, rtol=1e-5, err_msg=str(case))
        else:
            np.testing.assert_array_equal(got, wanted, err_msg=str(case))


def check_ragged(n, seed):
    mesh = make_mesh((n,), ("x",))
    for slices, rows, row in ((1, 20, (3,)), (3, 50, (400,))):
        arrays = cases.draw_ragged(np.random.default_rng(seed), n, slices, rows, row)

        def function(*parts):
            return oriel.ragged_all_to_all(*(part[0] for part in parts), axis_name="x")[None]

        step = sharded(mesh, function, (P("x"),) * 6, P("x"))
        got = step(*(spread(mesh, array, P("x")) for array in arrays.values()))
        expected = cases.ragged_by_numpy(**arrays)
        for shard in got.addressable_shards:
            np.testing.assert_array_equal(shard.data, expected[shard.index])


def check_barrier(n):
    mesh = make_mesh((n,), ("x",))
    x = np.arange(n * 3.0).reshape(n, 3)
    got = sharded(mesh, lambda v: oriel.barrier(v, "x"), P("x"), P("x"))(spread(mesh, x, P("x")))
    for shard in got.addressable_shards:
        np.testing.assert_array_equal(shard.data, x[shard.index])


def check_world(n):
    """Without a name: plain jit, one device per process."""
    mine = jnp.arange(float(n)) + oriel.rank()
    table = np.arange(float(n)) + np.arange(n)[:, None]  # of all ranks
    me = oriel.rank()

    @jax.jit
    def values(v):
        return (
            oriel.all_gather(v),
            oriel.reduce_scatter(v),
            oriel.all_to_all(v, None, 0, 0),
            oriel.broadcast(v, root=n - 1),
            oriel.permute(v, None, [(0, n - 1)]),
            oriel.barrier(v),
            oriel.reduce_scatter(v, op="mean"),
            jax.vmap(oriel.all_gather, out_axes=1)(v),
        )

    last = table[0] if me == n - 1 else 0 * table[0]
    expected = (
        table,
        table[:, me].sum(),
        table[:, me],
        table[n - 1],
        last,
        mine,
        table[:, me].mean(),
        table,
    )
    for got, wanted in zip(values(mine), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)
    np.testing.assert_array_equal(oriel.all_gather(mine, axis=1), table.T)  # eager

    def loss(v):
        return (oriel.broadcast(v, root=1) * (1 + v)).sum()

    # d/dv of sum over ranks of v_1 * (1 + v), each rank's own part
    gradient = jax.jit(jax.grad(loss))(mine)
    expected = table[1] + (me == 1) * (1 + table).sum(0)
    np.testing.assert_array_equal(gradient, expected)
    zeros = jnp.zeros(n, jnp.int32)
    ones = zeros + 1
    got = jax.jit(lambda *a: oriel.ragged_all_to_all(*a, axis_name=None))(
        mine, 0 * mine, jnp.arange(n), ones, zeros + me, ones
    )
    np.testing.assert_array_equal(got, table[:, me])


def main():
    oriel.init()
    n = oriel.size()
    assert n == 8
    number, seed = int(sys.argv[1]), int(sys.argv[2])
    check_cases(number, seed)
    check_ragged(n, seed)
    check_barrier(n)
    if n == oriel.num_processes():
        check_world(n)
    report(ok=True)


main()
