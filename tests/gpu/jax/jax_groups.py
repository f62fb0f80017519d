"""On GPUs: groups, trees of arrays, operations made of others, and bitwise reductions, inside
jit, against NumPy. Each program runs three times, as in jax_ops.py, on poisoned memory."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oriel
from jax_common import failure_of, own, poison, row, sharded, spread, start

jax.config.update("jax_enable_x64", True)

SHAPES = ((7,), (3, 60013))
BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def same(got, wanted, what):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, (what, got.shape, got.dtype)
    if wanted.dtype == ml_dtypes.bfloat16:
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(got, wanted, err_msg=what)


def whole(rng, shape, dtype=np.float32):
    """Whole numbers, whose sums are exact in any order."""
    return rng.integers(-9, 9, shape).astype(dtype)


def check_runs(name, step, operands, wanted):
    """Three runs: {what: result} of each must be what is wanted."""
    for turn in range(3):
        poison(16)
        results = step(*operands)
        assert results.keys() == wanted.keys()
        for what, array in results.items():
            same(own(array)[0], wanted[what], f"{name}, {what}, run {turn}")
    row(name)


def check_made(mesh, rng, shape):
    """gather, scatter, reduce and scan."""
    n, me = oriel.size(), oriel.rank()
    root = n - 1
    x = whole(rng, (n, n, *shape))

    def everything(v):
        v = v[0]
        found = {
            "gather": oriel.gather(v, "x", root=root),
            "scatter": oriel.scatter(v, "x", root=root),
            "reduce": oriel.reduce(v, "x", root=root),
            "scan": oriel.scan(v, "x"),
            "scan max": oriel.scan(v, "x", "max"),
        }
        return jax.tree.map(lambda a: a[None], found)

    wanted = {
        "gather": x if me == root else np.zeros_like(x),
        "scatter": x[root, me],
        "reduce": x.sum(0) if me == root else x[me],
        "scan": x[: me + 1].sum(0),
        "scan max": x[: me + 1].max(0),
    }
    step = sharded(mesh, everything, check_vma=False)
    check_runs(f"made of others, {shape}", step, [spread(mesh, x)], wanted)


def check_bits(mesh, rng, shape):
    n = oriel.size()
    for dtype in (np.uint8, np.int16, np.int32, np.uint64, np.bool_):
        if dtype == np.bool_:
            x = rng.integers(0, 2, (n, *shape)).astype(bool)
        else:
            info = np.iinfo(dtype)
            x = rng.integers(info.min, info.max, (n, *shape), dtype=dtype, endpoint=True)

        def everything(v):
            return {op: oriel.all_reduce(v[0], "x", op)[None] for op in BITS}

        wanted = {op: fold.reduce(x, axis=0) for op, fold in BITS.items()}
        step = sharded(mesh, everything, check_vma=False)
        check_runs(f"bits of {np.dtype(dtype)}, {shape}", step, [spread(mesh, x)], wanted)


def check_trees(mesh, rng):
    """One operation for each dtype, the bits of one by one; a derivative through it. No array is
    empty: of a program that returns such beside others, and calls nothing, XLA's compiler dies
    (jaxlib 0.11.2)."""
    n, me = oriel.size(), oriel.rank()
    kinds = (np.float32, np.float32, ml_dtypes.bfloat16, np.int32, ml_dtypes.bfloat16)
    shapes = ((5,), (n, 3), (1,), (2, n), (100_001,))
    tree = [whole(rng, (n, n, *shape), kind) for kind, shape in zip(kinds, shapes, strict=True)]

    def everything(*parts):
        parts = [part[0] for part in parts]
        found = {
            "all_reduce": oriel.all_reduce(parts, "x"),
            "all_gather": oriel.all_gather([part[0] for part in parts], "x"),
            "reduce_scatter": oriel.reduce_scatter(parts, "x"),
            "broadcast": oriel.broadcast(parts, "x", root=n - 1),
        }
        return {
            f"{name} {i}": part[None] for name, all_ in found.items() for i, part in enumerate(all_)
        }

    wanted = {}
    for i, x in enumerate(tree):
        total = x.astype(np.float64).sum(0).astype(x.dtype)
        wanted |= {
            f"all_reduce {i}": total,
            f"all_gather {i}": x[:, 0],
            f"reduce_scatter {i}": total[me],
            f"broadcast {i}": x[n - 1],
        }
    step = sharded(mesh, everything, check_vma=False)
    check_runs("trees", step, [spread(mesh, x) for x in tree], wanted)

    w = [whole(rng, x.shape) for x in tree[:2]]
    floats = [x.astype(np.float32) for x in tree[:2]]

    def loss(a, b, u, v):
        a, b = oriel.all_reduce((a[0], b[0]), "x")
        return (a * u[0]).sum() + (b * v[0]).sum()

    step = sharded(mesh, jax.grad(loss, (0, 1)), check_vma=False)
    got = step(*(spread(mesh, x) for x in (*floats, *w)))
    for part, weights in zip(got, w, strict=True):
        same(own(part)[0], weights.sum(0), "gradient of a tree")
    row("gradient of a tree")


def check_index_groups(mesh, rng):
    """The last rank by itself, beside all others."""
    n, me = oriel.size(), oriel.rank()
    others = list(range(n - 1))[::-1]
    groups = [others, [n - 1]]
    mine = others if me in others else [n - 1]
    x = whole(rng, (n, 4, 1000))

    def everything(v):
        v = v[0]
        return {
            "all_reduce": oriel.all_reduce(v, "x", axis_index_groups=groups)[None],
            "tree": sum(oriel.all_reduce([v, 2 * v], "x", axis_index_groups=groups))[None],
        }

    total = x[mine].sum(0)
    step = sharded(mesh, everything, check_vma=False)
    check_runs("index groups", step, [spread(mesh, x)], {"all_reduce": total, "tree": 3 * total})


def check_groups(rng):
    """Over the world: groups that cross, each called by its members alone."""
    n, me = oriel.size(), oriel.rank()
    x = whole(rng, (n, n, 1000))
    mine = jnp.asarray(x[me])
    for first in range(n):
        pair = oriel.group([(first + 1) % n, first])
        if pair.index is None:
            continue
        a, b = pair.ranks
        step = jax.jit(lambda v, pair=pair: oriel.all_reduce(v, group=pair))
        for turn in range(3):
            same(step(mine), x[a] + x[b], f"group {pair.ranks}, run {turn}")
        other = oriel.permute(mine, perm=[(0, 1), (1, 0)], group=pair)
        same(other, x[b if me == a else a], f"permute in {pair.ranks}")
        rows = oriel.gather(mine[0], group=pair, root=1)
        same(rows, x[[a, b], 0] if me == b else x[me, 0], f"gather in {pair.ranks}")
    row("groups over the world")
    everyone = oriel.group(range(n))
    same(oriel.scan(mine, group=everyone), x[: me + 1].sum(0), "scan over the world")
    part = oriel.scatter(mine if me == 0 else mine[0], root=0)
    same(part, x[0, me], "scatter over the world")
    row("made of others, over the world")


def check_refused():
    said = failure_of(lambda: oriel.send(jnp.ones(3), 1 - min(oriel.rank(), 1)))
    assert "GPU" in said or "cuda" in said.lower(), said
    row("messages are refused")


def main():
    mesh = start(timeout=20)
    rng = np.random.default_rng(5)
    for shape in SHAPES:
        check_made(mesh, rng, shape)
        check_bits(mesh, rng, shape)
    check_trees(mesh, rng)
    check_index_groups(mesh, rng)
    check_groups(rng)
    check_refused()
    oriel.check()
    oriel.finalize()
    row("end")


main()
