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


def check_global(n):
    x = np.arange(n * 5, dtype=np.float32).reshape(n, 5)
    line = make_mesh((n,), ("x",))
    for op in ("sum", "max", "min", "mean"):
        got = sharded(line, lambda v: oriel.all_reduce(v, "x", op))(spread(line, x, P("x")))
        for part in local_parts(got):
            np.testing.assert_array_equal(part[0], getattr(np, op)(x, 0))
    if n > 1:
        check_grid(n)
    gradient = jax.grad(lambda v: (oriel.all_reduce(v, "x") ** 2).sum())
    got = sharded(line, gradient, P("x"), P("x"))(spread(line, x, P("x")))
    for part in local_parts(got):
        np.testing.assert_array_equal(part[0], 2 * x.sum(0))


def check_grid(n):
    grid = make_mesh((2, n // 2), ("a", "b"))
    for axes, out, kept in (("a", P(None, "b"), 0), ("b", P("a"), 1)):
        step = sharded(grid, lambda v: oriel.all_reduce(v, axes), P("a", "b"), out)
        square = np.arange(2 * n, dtype=np.int32).reshape(2, n)
        expected = square.reshape(2, n // 2, 2).sum(kept, keepdims=True)
        expected = expected.reshape((1, n) if kept == 0 else (2, 2))
        for shard in step(spread(grid, square, P("a", "b"))).addressable_shards:
            np.testing.assert_array_equal(shard.data, expected[shard.index])


def check_world(n):
    """Without a name: plain jit, one device per process."""
    mine = jnp.arange(3.0) + oriel.rank()
    expected = n * np.arange(3.0) + sum(range(n))
    np.testing.assert_array_equal(jax.jit(oriel.all_reduce)(mine), expected)
    np.testing.assert_array_equal(oriel.all_reduce(mine), expected)  # eager
    np.testing.assert_array_equal(oriel.all_reduce(oriel.rank()), sum(range(n)))
    gradient = jax.jit(jax.grad(lambda v: oriel.all_reduce(v * v).sum()))(mine)
    np.testing.assert_array_equal(gradient, 2 * n * mine)
    mean = jax.jit(lambda v: oriel.all_reduce(v, op="mean"))(mine)
    np.testing.assert_allclose(mean, expected / n, rtol=1e-6)
    batched = jax.vmap(oriel.all_reduce)(mine)
    np.testing.assert_array_equal(batched, expected)


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
    if n == oriel.num_processes():
        check_world(n)
    report(ok=True, size=n, rank=oriel.rank())


main()
