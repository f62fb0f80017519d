"""All operations inside jit on GPUs, against NumPy: jax_ops.py [SEED]. Small and large
arrays, each dtype; memory is poisoned first, and each program runs twice, since peers map
large buffers only after their first use."""

import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oriel
from jax.sharding import PartitionSpec as P
from jax_common import own, poison, row, sharded, spread, start

jax.config.update("jax_enable_x64", True)

DTYPES = [
    np.dtype(name)
    for name in (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
        "complex128"
    ).split()
] + [
    np.dtype(kind) for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
]
FOLDS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
SMALL, LARGE = (3, 7), (5, 60013)


def draw(rng, shape, dtype):
    if dtype == bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    real = rng.normal(size=shape)
    return (real + 1j * rng.normal(size=shape) if dtype.kind == "c" else real).astype(dtype)


def is_narrow(dtype):
    return dtype.name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def fold(parts, op):
    """As the library promises: in rank order, narrow floats in f32."""
    wide = parts.astype(np.float32) if is_narrow(parts.dtype) else parts
    with np.errstate(all="ignore"):
        total = wide[0]
        for part in wide[1:]:
            total = FOLDS[op](total, part)
    return total.astype(parts.dtype)


def same(got, wanted, what):
    got = np.asarray(got)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, (what, got.shape, got.dtype)
    if is_narrow(wanted.dtype):
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(got, wanted, err_msg=what)


def check_dtype(mesh, dtype, shape, rng):
    n, me = oriel.size(), oriel.rank()
    x = draw(rng, (n, n, *shape), dtype)  # of each rank: a block for each rank
    complex_ = dtype.kind == "c"
    ops = [op for op in FOLDS if not (dtype == bool and op in ("sum", "prod"))]
    if complex_:
        ops = ["sum"]  # NumPy rounds products and compares otherwise
    ring = [(i, (i + 1) % n) for i in range(n)]

    def everything(v):
        v = v[0]
        found = {f"all_reduce {op}": oriel.all_reduce(v, "x", op) for op in ops}
        found |= {f"reduce_scatter {op}": oriel.reduce_scatter(v, "x", op=op) for op in ops}
        found["all_gather"] = oriel.all_gather(v[0], "x")
        found["all_to_all"] = oriel.all_to_all(v, "x", 0, 0)
        found["broadcast"] = oriel.broadcast(v, "x", root=n - 1)
        found["permute ring"] = oriel.permute(v, "x", ring)
        found["permute one"] = oriel.permute(v, "x", [(0, n - 1)])
        found["barrier"] = oriel.barrier(v, "x")
        return jax.tree.map(lambda a: a[None], found)

    wanted = {f"all_reduce {op}": fold(x, op) for op in ops}
    wanted |= {f"reduce_scatter {op}": fold(x, op)[me] for op in ops}
    wanted["all_gather"] = x[:, 0]
    wanted["all_to_all"] = x[:, me]
    wanted["broadcast"] = x[n - 1]
    wanted["permute ring"] = x[(me - 1) % n]
    wanted["permute one"] = x[0] if me == n - 1 else np.zeros_like(x[0])
    wanted["barrier"] = x[me]
    step = sharded(mesh, everything, check_vma=False)
    for turn in range(3):
        poison(16)
        results = step(spread(mesh, x))
        for name, array in results.items():
            same(own(array)[0], wanted[name], f"{name} of {dtype} {shape}, run {turn}")


def check_ragged(mesh, rng):
    n, me = oriel.size(), oriel.rank()
    for slices, rows, width in ((1, 20, 3), (3, 5000, 100)):
        sizes = rng.integers(0, rows // (n * slices) + 1, (n, n, slices))  # from, to, slice
        send = rng.normal(size=(n, rows, width)).astype(np.float32)
        output = rng.normal(size=(n, rows, width)).astype(np.float32)
        starts = np.cumsum(sizes.reshape(n, -1), 1) - sizes.reshape(n, -1)
        into = np.cumsum(sizes.transpose(1, 0, 2).reshape(n, -1), 1)
        into = (into - sizes.transpose(1, 0, 2).reshape(n, -1)).reshape(n, n, slices)
        arrays = (
            send,
            output,
            starts,
            sizes.reshape(n, -1),
            into.transpose(1, 0, 2).reshape(n, -1),
            sizes.transpose(1, 0, 2).reshape(n, -1),
        )
        wanted = output[me].copy()
        for other in range(n):
            for k in range(slices):
                count, to = sizes[other, me, k], into[me, other, k]
                begin = starts.reshape(n, n, slices)[other, me, k]
                wanted[to : to + count] = send[other, begin : begin + count]

        def exchange(*parts):
            return oriel.ragged_all_to_all(*(part[0] for part in parts), axis_name="x")[None]

        step = sharded(mesh, exchange, (P("x"),) * 6)
        for turn in range(3):
            poison(16)
            got = step(*(spread(mesh, np.asarray(a)) for a in arrays))
            same(own(got)[0], wanted, f"ragged of {slices} slices, run {turn}")
    row("ragged")


def check_gradients(mesh, rng):
    n, me = oriel.size(), oriel.rank()
    x = rng.normal(size=(n, n, 1000))
    w = rng.normal(size=(n, n, 1000))

    def loss(v, u):
        v, u = v[0], u[0]
        parts = (
            (oriel.all_reduce(v, "x") * u).sum(),
            (oriel.all_to_all(v, "x", 0, 0) * u).sum(),
            (oriel.broadcast(v, "x", root=0) * u).sum(),
            (oriel.reduce_scatter(v, "x") * u[0]).sum(),
            (oriel.all_gather(v[1], "x") * u).sum(),
        )
        return sum(parts)

    # With check_vma JAX would add a psum of its own, and its NCCL wants a GPU for each rank.
    step = sharded(mesh, jax.grad(loss), (P("x"), P("x")), check_vma=False)
    gradient = step(spread(mesh, x), spread(mesh, w))
    total = w.sum(0)
    wanted = total + w[:, me]  # all_reduce, all_to_all
    wanted = wanted + (total if me == 0 else 0)  # broadcast
    wanted = wanted + w[:, 0]  # reduce_scatter
    wanted[1] += total[me]  # all_gather
    # Cotangents are added up in an order of JAX's own.
    np.testing.assert_allclose(own(gradient)[0], wanted, rtol=1e-12, atol=1e-14)
    row("gradients")


def check_world():
    """Outside shard_map: the whole world, jitted and eager."""
    mine = jnp.arange(5.0) + oriel.rank()
    table = np.arange(5.0) + np.arange(oriel.size())[:, None]
    same(jax.jit(oriel.all_reduce)(mine), table.sum(0), "all_reduce of the world")
    same(oriel.all_gather(mine), table, "all_gather of the world")
    row("world")


def main(seed):
    mesh = start(timeout=20)
    rng = np.random.default_rng(seed)
    for shape in (SMALL, LARGE):
        dtypes = (
            DTYPES
            if shape == SMALL
            else [np.dtype(name) for name in ("float32", "int8", "complex128", ml_dtypes.bfloat16)]
        )
        for dtype in dtypes:
            check_dtype(mesh, dtype, shape, rng)
        row(f"blocks of {shape[0]}x{shape[1]}")
    check_ragged(mesh, rng)
    check_gradients(mesh, rng)
    check_world()
    oriel.check()
    oriel.finalize()
    row("end")


main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
