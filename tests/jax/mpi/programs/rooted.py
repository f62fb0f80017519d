"""gather, scatter, reduce and scan over the world, of programs that differ between ranks:
rooted.py, one device for each process, any number of them."""

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import report
from oriel import _calls
from oriel._collectives import rooted as _rooted

SHAPE = 2, 3


def values(rank, shape=SHAPE):
    return np.random.default_rng(rank).normal(size=shape)


def near(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def wanted_of(table, rank, root):
    """{name: what a rank gets}; `table` has what all ranks give."""
    tall = [np.stack([values(root) + i for i in range(len(table))])]
    return {
        "gather": table if rank == root else table[rank],
        "scatter": tall[0][rank],
        "reduce": table.sum(0) if rank == root else table[rank],
        "scan": table[: rank + 1].sum(0),
    }


def given(name, root):
    """What this rank gives: to scatter its root has a block for each."""
    rank, n = oriel.rank(), oriel.size()
    if name == "scatter" and rank == root:
        return jnp.stack([jnp.asarray(values(root)) + i for i in range(n)])
    return jnp.asarray(values(rank))


def function_of(name, root):
    if name == "scan":
        return oriel.scan
    return lambda x: getattr(oriel, name)(x, root=root)


def composed(name, root):
    """As GPUs have it."""
    arguments = {"reduce": ("sum", root), "scan": ("sum", False)}.get(name, (root,))

    def call(x):
        with _calls.making(_calls.Made(f"{name} composed")):
            return getattr(_rooted, f"compose_{name}")(x, None, *arguments)

    return call


NAMES = "gather", "scatter", "reduce", "scan"


def check_values(root):
    """By hand, in jit, as GPUs have it, and of several arrays at once."""
    rank, n = oriel.rank(), oriel.size()
    table = np.stack([values(r) for r in range(n)])
    wanted = wanted_of(table, rank, root)
    for name in NAMES:
        x, function = given(name, root), function_of(name, root)
        near(function(x), wanted[name])
        near(jax.jit(function)(x), wanted[name])
        near(jax.jit(composed(name, root))(x), wanted[name])
        # Each rank maps another dimension of its own array.
        lead = int(name == "scatter" and rank == root)
        out = int(name == "gather" and rank == root)
        mapped = jax.vmap(function, in_axes=lead + rank % 2, out_axes=out + rank % 2)
        moved = jnp.moveaxis(jnp.moveaxis(x, lead, -1), -1, lead + rank % 2)
        turned = np.moveaxis(np.moveaxis(wanted[name], out, -1), -1, out + rank % 2)
        near(jax.jit(mapped)(moved), turned)


def gradient_of(function, x, weights):
    return jax.jit(jax.grad(lambda x: (function(x) * weights).sum()))(x)


def check_derivatives(root):
    """Of the sum over ranks of what each rank's program computes."""
    rank, n = oriel.rank(), oriel.size()
    weights = [np.cos(np.arange(6).reshape(SHAPE) + r) for r in range(n)]
    tall = np.stack([np.sin(w) for w in weights])
    mine = {"gather": tall if rank == root else weights[rank]}
    own = np.zeros(SHAPE) if rank == root else weights[rank]
    wanted = {
        "gather": tall[rank] + own,
        "scatter": np.stack(weights) if rank == root else np.zeros(SHAPE),
        "reduce": weights[root] + own,
        "scan": np.sum(weights[rank:], 0),
    }
    for name in NAMES:
        for function in (function_of(name, root), composed(name, root)):
            x, w = given(name, root), mine.get(name, weights[rank])
            near(gradient_of(function, x, w), wanted[name])
            again = jax.jvp(function, (x,), (2 * x,))
            near(again[1], 2 * np.asarray(again[0]))


def check_sizes():
    """Past what one meeting holds; without elements; booleans."""
    rank, n = oriel.rank(), oriel.size()
    for count in (0, 1, 20_011):
        x = jnp.arange(count, dtype=jnp.int32) + rank
        table = np.arange(count) + np.arange(n)[:, None]
        got = jax.jit(lambda x: (oriel.gather(x), oriel.scan(x), oriel.reduce(x, op="max")))(x)
        near(got[0], table if rank == 0 else table[rank])
        near(got[1], table[: rank + 1].sum(0))
        near(got[2], table.max(0) if rank == 0 else table[rank])
        back = jax.jit(lambda x: oriel.scatter(x))(
            jnp.asarray(table, x.dtype) if rank == 0 else 0 * x
        )
        near(back, table[rank])
    near(oriel.scan(jnp.ones(3, bool)), rank + 1)
    near(oriel.gather(jnp.float32(rank)), np.arange(n) if rank == 0 else rank)


def check_errors():
    x = jnp.ones((oriel.size() + 1, 2))
    for arguments, words in (
        ({"root": oriel.rank()}, "dimension 0 of x (axis) has size"),
        ({"root": oriel.size()}, f"root is {oriel.size()}, but there are"),
    ):
        try:
            oriel.scatter(x, **arguments)
            raise AssertionError(f"accepted: {arguments}")
        except ValueError as error:
            assert words in str(error), error


def main():
    jax.config.update("jax_enable_x64", True)
    oriel.init()
    for root in {0, oriel.size() - 1}:
        check_values(root)
        check_derivatives(root)
    check_sizes()
    check_errors()
    report(ok=True)


main()
