"""On GPUs: groups, messages, trees of arrays, operations made of others, and bitwise reductions,
inside jit, against NumPy. Each program runs three times, as in jax_ops.py, on poisoned memory."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oriel
from jax_common import failure_of, own, poison, row, sharded, spread, start, wait_for

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


def check_ring(rng, shape):
    """sendrecv: with two ranks one permutation of both, with more one for each neighbour."""
    n, me = oriel.size(), oriel.rank()
    after, before = (me + 1) % n, (me - 1) % n
    x, w = whole(rng, (n, *shape)), whole(rng, (n, *shape))
    mine = jnp.asarray(x[me])

    def shift(v):
        return oriel.sendrecv(v, v, before, after)

    step = jax.jit(lambda v: shift([v, 2 * v, v.astype(jnp.int16)]))
    for turn in range(3):
        poison(16)
        got = step(mine)
        for array, wanted in zip(got, (x, 2 * x, x.astype(np.int16)), strict=True):
            same(array, wanted[before], f"round a ring, {shape}, run {turn}")
    grad = jax.grad(lambda v: (shift(v) * w[me]).sum())
    for function in (grad, jax.jit(grad)):
        same(function(mine), w[after], f"gradient of a ring, {shape}")
    if len(shape) == 2:
        dim = me % 2
        mapped = jax.jit(jax.vmap(shift, in_axes=dim, out_axes=dim))
        wanted = np.moveaxis(x[before], 0, dim)
        same(mapped(np.moveaxis(x[me], 0, dim)), wanted, "vmap of a ring")
    row(f"messages round a ring, {shape}")


def check_one_by_one(rng):
    """Rank 0 sends what the others count, in a program of its own, and all make another call."""
    n, me = oriel.size(), oriel.rank()
    x = whole(rng, (n, 1000))

    @jax.jit
    def send_all(v):
        for to in range(1, n):
            v = oriel.send(v, to)
            v = jax.lax.fori_loop(0, 3, lambda i, v, to=to: oriel.send(v + 1, to), v)
            v = jax.lax.cond(v[0] > -100, lambda v, to=to: oriel.send(v + 1, to), lambda v: v, v)
            v = v - 4
        return oriel.all_reduce(v, tag="sum")

    @jax.jit
    def receive_all(v):
        first = oriel.recv(v, 0)
        rest = jax.lax.scan(lambda c, _: (c, oriel.recv(v, 0)), 0, None, length=4)[1]
        return first, rest, oriel.all_reduce(v, tag="sum")

    for turn in range(3):
        poison(16)
        if me == 0:
            total = send_all(jnp.asarray(x[0]))
        else:
            first, rest, total = receive_all(jnp.asarray(x[me]))
            same(first, x[0], f"first message, run {turn}")
            same(rest, x[0] + np.arange(1, 5, dtype=np.float32)[:, None], f"messages, run {turn}")
        same(total, x.sum(0), f"sum beside messages, run {turn}")
    row("messages one by one")

    a, b = whole(rng, (2, 1000))
    if me == 0:
        got = jax.jit(jax.grad(lambda v: (oriel.send(v**2, 1) * a).sum()))(jnp.asarray(x[0]))
        same(got, 2 * x[0] * (a + b), "gradient of send")
    elif me == 1:
        got = jax.jit(jax.grad(lambda v: (oriel.recv(v, 0) * b + v).sum()))(jnp.asarray(x[1]))
        same(got, np.ones_like(x[1]), "gradient of recv")
    row("gradient of messages")


def check_both_send_first():
    """In a world of its own, as that ends it: both are told who sends."""

    def told():
        if oriel.rank() < 2:
            jax.block_until_ready(oriel.send(jnp.ones(3), 1 - oriel.rank()))
        wait_for(oriel.check, 30)

    start(timeout=20)
    said = failure_of(told)
    assert "permute" in said and "rank 0" in said and "rank 1" in said, said
    print(f"both send first: {said}", flush=True)
    oriel.finalize()
    row("messages that both send first")


def main():
    mesh = start(timeout=20)
    rng = np.random.default_rng(5)
    for shape in SHAPES:
        check_made(mesh, rng, shape)
        check_bits(mesh, rng, shape)
    check_trees(mesh, rng)
    check_index_groups(mesh, rng)
    check_groups(rng)
    for shape in SHAPES:
        check_ring(rng, shape)
    check_one_by_one(rng)
    oriel.check()
    oriel.finalize()
    check_both_send_first()
    row("end")


main()
