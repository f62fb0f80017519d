"""Trees between processes: all cases, and at last one in which ranks differ."""

import ctypes

import jax
import numpy as np
import oriel
from common import local_parts, make_mesh, report, sharded, spread
from jax.sharding import PartitionSpec as P
from oriel import _lib

LENGTHS = [1 + 997 * i % 1024 for i in range(100)]
FEW = LENGTHS[:12]  # what is compiled one by one takes long


def mine(lengths=LENGTHS):
    """Arrays of this rank that no two ranks have alike."""
    rng = np.random.default_rng(oriel.rank())
    return [rng.standard_normal(n).astype(np.float32) for n in lengths]


def same_bits(got, wanted):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def together_and_alone(operation):
    """Of the tree, twice, since only the first call of a program finds its cell anew."""
    together = jax.jit(operation)
    alone = jax.jit(lambda tree: [operation(leaf) for leaf in tree])
    for _ in range(2):
        same_bits(together(mine(FEW)), alone(mine(FEW)))


def over_the_world():
    together_and_alone(oriel.all_reduce)
    together_and_alone(oriel.all_gather)
    together_and_alone(lambda tree: oriel.broadcast(tree, root=1))
    n = oriel.size()
    tree = [np.tile(v, (n, 1)) for v in mine(FEW)]
    got = jax.jit(oriel.reduce_scatter)(tree)
    same_bits(got, [np.asarray(v) for v in jax.jit(oriel.all_reduce)(mine(FEW))])


def over_axes():
    mesh = make_mesh((oriel.size(),), ("x",))
    tree = [spread(mesh, np.stack([v] * oriel.size()), P("x")) for v in mine(FEW)]

    def both(t):
        return oriel.all_reduce(t, "x"), [oriel.all_reduce(v, "x") for v in t]

    for a, b in zip(*sharded(mesh, both)(tree), strict=True):
        same_bits(local_parts(a), local_parts(b))


def tags():
    """Of a tree each dtype is a call, and has a tag of its own."""
    tree = {"a": np.ones(3, np.float32), "b": np.ones(2, np.int32), "c": np.ones(5, np.float32)}
    if oriel.rank() == 0:
        got = jax.jit(lambda t: oriel.all_reduce(t, tag="grads"))(tree)
    else:
        got = jax.jit(lambda t: oriel.all_reduce(t, tag="grads"))(dict(reversed(tree.items())))
    same_bits(got, jax.tree.map(lambda v: v * v.dtype.type(oriel.size()), tree))


def transposed_with_zeros():
    """Each rank uses another result: all send what belongs to all of them."""
    tree = [np.full(n, oriel.rank() + 1, np.float32) for n in (3, 5, 7)]

    def loss(t):
        return oriel.all_reduce(t, tag="loss")[oriel.rank() % 2].sum()

    got = jax.jit(jax.grad(loss))(tree)
    shares = [sum(r % 2 == i for r in range(oriel.size())) for i in range(3)]
    same_bits(got, [np.full_like(v, share) for v, share in zip(tree, shares)])


def transposed_in_part():
    """Each rank differentiates by another array of one shape."""
    rank, n = oriel.rank(), oriel.size()
    first, second = (np.arange(3) + rank).astype(np.float32), np.full(3, rank + 2, np.float32)

    def loss(a, b):
        a, b = oriel.all_reduce((a, b), tag="part")
        return (a * b).sum()

    got = jax.jit(jax.grad(loss, rank % 2))(first, second)
    other = [np.full(3, r + 2) if rank % 2 == 0 else np.arange(3) + r for r in range(n)]
    same_bits(got, (n * np.sum(other, 0)).astype(np.float32))


def told(function, tree):
    """The sentence of its failure."""
    try:
        jax.block_until_ready(function(tree))
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        return str(error)


def differ():
    """As many elements in as many arrays."""
    lengths = list(LENGTHS)
    if oriel.rank() == 1:
        lengths[0], lengths[1] = lengths[1], lengths[0]
    return told(jax.jit(oriel.all_reduce), mine(lengths))


def differ_over_axes():
    """Rank 1 has one element more."""
    mesh = make_mesh((oriel.size(),), ("x",))
    lengths = [LENGTHS[0] + (oriel.rank() == 1), *LENGTHS[1:]]
    tree = [np.ones(oriel.size() * n, np.float32) for n in lengths]
    whole = [spread(mesh, v, P("x")) for v in tree]
    return told(sharded(mesh, lambda t: oriel.all_reduce(t, "x")), whole)


def refused():
    """Calls made by hand: src/ffi/ffi.h says how."""
    attributes = {
        "version": ctypes.c_int64.in_dll(_lib.load(), "oriel_ffi_version").value,
        "kind": 1,
        "group_size": oriel.size(),
        "name": 1,
        "program": 1,
        "world": oriel.size(),
    }
    numbers = {name: np.int64(value) for name, value in attributes.items()}
    ranks = np.arange(oriel.size())
    for operands, results, sentence in [
        (
            [np.ones(3, np.float32), np.ones(3, np.int32)],
            2,
            "operand 0 has dtype f32, and operand 1 s32",
        ),
        ([np.ones(3, np.float32), np.ones(3, np.float32)], 1, "2 operands and 1 results"),
        ([np.ones(3, np.float32)], 2, "1 operands and 2 results"),
    ]:
        kinds = [jax.ShapeDtypeStruct((3,), x.dtype) for x in (operands * 2)[:results]]
        call = jax.ffi.ffi_call("oriel_all_reduce", kinds, has_side_effect=True)
        said = told(jax.jit(lambda xs: call(*xs, groups=ranks, **numbers)), operands)
        assert said is not None and sentence in said, said


oriel.init()
refused()
for case in (over_the_world, over_axes, tags, transposed_with_zeros, transposed_in_part):
    case()
report(differs=differ())
try:
    oriel.finalize()
except oriel.OrielError as error:
    print(error)
oriel.init()
report(differs=differ_over_axes())
