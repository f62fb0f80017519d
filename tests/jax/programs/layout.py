"""All-reduces over every mesh that fits: layout.py jax|oriel|local

jax     the user has initialised jax.distributed
oriel   oriel.init does
local   distributed=False: JAX sees its own devices only"""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import local_parts, make_mesh, report, sharded, spread
from jax.sharding import PartitionSpec as P

OPS = ("sum", "max", "min", "mean")


def check_global(n):
    """One program for all: what takes time here is compiling."""
    x = np.arange(n * 5, dtype=np.float32).reshape(n, 5)
    mesh = make_mesh((n,), ("x",))

    def function(v):
        values = {op: oriel.all_reduce(v, "x", op) for op in OPS}
        return values, jax.grad(lambda w: (oriel.all_reduce(w, "x") ** 2).sum())(v)

    values, gradient = sharded(mesh, function, P("x"), (P(), P("x")))(spread(mesh, x, P("x")))
    for op in OPS:
        for part in local_parts(values[op]):
            np.testing.assert_array_equal(part[0], getattr(np, op)(x, 0))
    for part in local_parts(gradient):
        np.testing.assert_array_equal(part[0], 2 * x.sum(0))


def check_grid(n):
    order = np.random.default_rng(1).permutation(n)
    mesh = make_mesh((2, n // 2), ("a", "b"), order)
    x = np.arange(2 * n, dtype=np.int32).reshape(2, n)

    def function(v):
        return oriel.all_reduce(v, "a"), oriel.all_reduce(v, "b")

    step = sharded(mesh, function, P("a", "b"), (P(None, "b"), P("a")))
    results = step(spread(mesh, x, P("a", "b")))
    parts = x.reshape(2, n // 2, 2)
    expected = parts.sum(0).reshape(1, n), parts.sum(1)
    for result, table in zip(results, expected, strict=True):
        for shard in result.addressable_shards:
            np.testing.assert_array_equal(shard.data, table[shard.index])


def check_world(n):
    """Without a name: plain jit, one device per process."""
    mine = jnp.arange(3.0) + oriel.rank()
    expected = n * np.arange(3.0) + sum(range(n))

    @jax.jit
    def function(v):
        return (
            oriel.all_reduce(v),
            oriel.all_reduce(v, op="mean"),
            jax.grad(lambda w: oriel.all_reduce(w * w).sum())(v),
            jax.vmap(oriel.all_reduce)(v),
        )

    total, mean, gradient, batched = function(mine)
    np.testing.assert_array_equal(total, expected)
    np.testing.assert_allclose(mean, expected / n, rtol=1e-6)
    np.testing.assert_array_equal(gradient, 2 * n * mine)
    np.testing.assert_array_equal(batched, expected)
    np.testing.assert_array_equal(oriel.all_reduce(mine), expected)  # eager
    np.testing.assert_array_equal(oriel.all_reduce(oriel.rank()), sum(range(n)))


def check_local():
    devices = jax.local_device_count()
    x = np.arange(devices * 2, dtype=np.float32).reshape(devices, 2) + oriel.rank()
    got = sharded(make_mesh((devices,), ("x",)), lambda v: oriel.all_reduce(v, "x"))(x)
    np.testing.assert_array_equal(np.asarray(got)[0], x.sum(0))


def main():
    kind = sys.argv[1]
    if kind == "jax":
        jax.distributed.initialize(
            sys.argv[2],
            int(os.environ["ORIEL_NUM_PROCESSES"]),
            int(os.environ["ORIEL_PROCESS_ID"]),
        )
    oriel.init(distributed=False if kind == "local" else None)
    n = oriel.size()
    assert oriel.local_size() == jax.local_device_count()
    assert oriel.rank() == oriel.process_id() * oriel.local_size()
    if kind == "local":
        assert jax.process_count() == 1
        check_local()
    else:
        assert jax.process_count() == oriel.num_processes()
        assert jax.device_count() == n
        check_global(n)
        if n > 1:
            check_grid(n)
    if n == oriel.num_processes():
        check_world(n)
    report(ok=True, size=n, rank=oriel.rank())


main()
