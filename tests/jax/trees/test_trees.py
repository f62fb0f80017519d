"""A tree of arrays is one call for each dtype, with the results of one by one."""

import functools
import re

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P
from oriel._collectives import lists
from support import assert_bits, assert_same, examples, make_mesh, over, picker

N = 8
OURS = {
    "all_reduce": lambda x, **more: oriel.all_reduce(x, "x", **more),
    "all_gather": lambda x: oriel.all_gather(x, "x"),
    "reduce_scatter": lambda x, **more: oriel.reduce_scatter(x, "x", **more),
    "broadcast": lambda x: oriel.broadcast(x, "x", root=5),
}
THEIRS = {
    "all_reduce": lambda x: lax.psum(x, "x"),
    "all_gather": lambda x: jax.tree.map(lambda v: lax.all_gather(v, "x"), x),
    "reduce_scatter": lambda x: jax.tree.map(lambda v: lax.psum_scatter(v, "x"), x),
    # lax.pbroadcast has no derivative.
    "broadcast": lambda x: jax.tree.map(lambda v: lax.all_gather(v, "x")[5], x),
}
each_operation = pytest.mark.parametrize("operation", OURS)
each_check = pytest.mark.parametrize("check_vma", [True, False])


def one_by_one(operation, tree):
    return jax.tree.map(operation, tree)


def calls_of(lowered):
    """(operation, number of results) of each custom call."""
    found = re.findall(r"%\d+(?::(\d+))? = stablehlo.custom_call @oriel_(\w+)", lowered.as_text())
    return [(name, int(number or 1)) for number, name in found if name != "after"]


def draw_tree(pick, dtypes):
    """Arrays of 8 devices, whose first dimension is over them, and the second one too."""
    rng = np.random.default_rng(pick(list(range(1000))))
    shapes = [(), (1,), (5,), (3, 2), (0,), (41,)]
    number = pick([1, 2, 3, 7])
    arrays = [
        cases.draw_values(rng, (N, N, *pick(shapes)), np.dtype(pick(dtypes))) for _ in range(number)
    ]
    return {"first": arrays[:1], "others": tuple(arrays[1:])}


def per_device(function):
    """`function` of each device's part of the arrays."""
    return lambda tree: jax.tree.map(
        lambda v: v[None], function(jax.tree.map(lambda v: v[0], tree))
    )


@examples(6, soak=200)
@given(st.data())
@each_operation
def test_any_tree(operation, data):
    pick = picker(data)
    more = {}
    if operation in ("all_reduce", "reduce_scatter"):
        more["op"] = pick(["sum", "max", "prod", "mean"])
    dtypes = pick([cases.DTYPES[:2], cases.DTYPES])
    tree = draw_tree(pick, [d for d in dtypes if more.get("op") != "max" or d.kind != "c"])
    check_vma = pick([True, False])

    def function(t):
        ours = functools.partial(OURS[operation], **more)
        return ours(t), one_by_one(ours, t)

    mapped = over(make_mesh(), per_device(function), P("x"), P("x"), check_vma)
    together, alone = mapped(tree)
    assert jax.tree.structure(together) == jax.tree.structure(tree)
    jax.tree.map(assert_bits, together, alone)


TREE = {
    "a": np.arange(N * N * 3, dtype=np.float32).reshape(N, N, 3),
    "b": [np.ones((N, N), np.int32), np.linspace(0, 1, N * N * 4).reshape(N, N, 2, 2)],
    "c": (np.full((N, N, 1), 2, np.float32), np.zeros((N, N, 0), np.float32)),
    "d": np.eye(N, dtype=np.float64),
}


@each_check
@each_operation
def test_one_call_for_each_dtype(operation, check_vma):
    """An empty array is in none; what is alone of its dtype is an ordinary call."""
    mapped = over(make_mesh(), per_device(OURS[operation]), P("x"), P("x"), check_vma)
    assert sorted(calls_of(mapped.lower(TREE))) == [(operation, 1), (operation, 2), (operation, 2)]
    theirs = over(make_mesh(), per_device(THEIRS[operation]), P("x"), P("x"), check_vma)
    ours, wanted = mapped(TREE), theirs(TREE)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), ours, wanted)


def test_many_arrays_are_counted_in_words():
    mapped = over(make_mesh(), per_device(OURS["all_reduce"]), P("x"), P("x"))
    text = mapped.lower([np.ones((N, 3, i), np.float32) for i in range(1, 101)]).as_text()
    letters = re.search(r"told = dense<\[([-\d, ]+)\]>", text)[1]
    words = np.array(letters.split(","), np.int64).tobytes().decode()
    assert "all_reduce reduce 0 of 100 arrays, 15150 f32 at" in words


@each_operation
def test_one_array_is_the_same_program(operation):
    """As a tree of one leaf, and as itself."""

    def text(tree):
        mapped = over(make_mesh(), per_device(OURS[operation]), P("x"), P("x"))
        return mapped.lower(tree).as_text()

    array = TREE["a"]
    assert text(array) == text([array]).replace('"result[0]"', '"result"')
    assert f"oriel_{operation}" in text(array)


def test_minloc_is_two_calls():
    def function(tree):
        return oriel.all_reduce(tree, "x", "minloc"), one_by_one(
            lambda v: oriel.all_reduce(v, "x", "minloc"), tree
        )

    tree = {"a": TREE["a"], "c": TREE["c"][0]}
    mapped = over(make_mesh(), per_device(function), P("x"), P("x"))
    together, alone = mapped(tree)
    assert_same(together, alone)
    alone = over(make_mesh(), per_device(lambda t: function(t)[0]), P("x"), P("x"))
    assert calls_of(alone.lower(tree)) == [("all_reduce", 2), ("all_reduce", 2)]


# ---- transformations ------------------------------------------------------------------


FLOATS = {"a": TREE["a"], "b": TREE["c"][0], "c": TREE["a"][..., 1]}


def weigh(tree):
    """A number that depends on each element in its own way."""
    leaves = jax.tree.leaves(tree)
    return sum(jnp.sum(jnp.sin(v) * (i + 1)) for i, v in enumerate(leaves))


def both(operation, function):
    """What `function(operation)` does with oriel's and with lax's, compared."""
    results = [function(table[operation]) for table in (OURS, THEIRS)]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), *results)
    return results[0]


@each_check
@each_operation
def test_grad(operation, check_vma):
    def function(call):
        gradient = jax.grad(lambda t: weigh(call(t)))
        return over(make_mesh(), per_device(gradient), P("x"), P("x"), check_vma)(FLOATS)

    both(operation, function)


@each_check
@each_operation
def test_grad_of_some(operation, check_vma):
    """With respect to one array, through the result of another."""

    def function(call):
        def loss(a, t):
            y = call(t | {"a": a})
            return jnp.sum(jnp.cos(y["a"])) + jnp.sum(y["b"])

        return over(
            make_mesh(),
            per_device(lambda t: jax.grad(loss)(t["a"], t)),
            P("x"),
            P("x"),
            check_vma,
        )(FLOATS)

    both(operation, function)


@each_check
@each_operation
def test_grad_through_one_result(operation, check_vma):
    """The others' cotangents are zeros, and are sent: ranks need not know who uses what."""

    def function(call):
        def gradient(t):
            return jax.grad(lambda u: jnp.sum(jnp.cos(call(u)["b"])))(t)

        mapped = over(make_mesh(), per_device(gradient), P("x"), P("x"), check_vma)
        return mapped(FLOATS)

    both(operation, function)


@each_check
@each_operation
def test_jvp(operation, check_vma):
    def function(call):
        def tangent(t):
            return jax.jvp(lambda a: call(t | {"a": a}), (t["a"],), (jnp.cos(t["a"]),))

        return over(make_mesh(), per_device(tangent), P("x"), P("x"), check_vma)(FLOATS)

    both(operation, function)


@each_operation
def test_vmap_of_some(operation):
    """Of the arrays some are mapped, at different places: as entry by entry with lax."""
    axes = {"a": 1, "b": None, "c": 0}
    shapes = {"a": (N, 3, 4), "b": (N, 1), "c": (3, N)}
    rng = np.random.default_rng(4)
    tree = {k: rng.standard_normal((N, *shape)).astype(np.float32) for k, shape in shapes.items()}

    def entry(t, k):
        return {
            name: v if axes[name] is None else jnp.take(v, k, axes[name]) for name, v in t.items()
        }

    def function(t):
        ours = jax.vmap(OURS[operation], in_axes=(axes,))(t)
        theirs = [THEIRS[operation](entry(t, k)) for k in range(3)]
        return ours, jax.tree.map(lambda *entries: jnp.stack(entries), *theirs)

    ours, theirs = over(make_mesh(), per_device(function), P("x"), P("x"))(tree)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), ours, theirs)


def test_vmap_over_the_axis():
    """Over an axis of vmap, and one of vmap with one of the mesh."""
    for names in ("v", ("x", "v")):

        def function(tree, names=names):
            ours = jax.vmap(lambda t: oriel.all_reduce(t, names), axis_name="v")(tree)
            theirs = jax.vmap(lambda t: lax.psum(t, names), axis_name="v")(tree)
            return ours, theirs

        mapped = over(make_mesh(), per_device(function), P("x"), P("x"), check_vma=False)
        ours, theirs = mapped(TREE)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), ours, theirs)


def test_scan_and_eager():
    def scanned(tree):
        return lax.scan(
            lambda c, _: (jax.tree.map(lambda v: v / N, OURS["all_reduce"](c)), None),
            tree,
            length=3,
        )[0]

    tree = {"a": TREE["a"], "b": TREE["c"][0]}
    mesh, function = make_mesh(), per_device(scanned)
    whole = over(mesh, function, P("x"), P("x"), check_vma=False)(tree)
    specs = {"in_specs": P("x"), "out_specs": P("x")}
    assert_same(whole, jax.shard_map(function, mesh=mesh, check_vma=False, **specs)(tree))
    for name, array in tree.items():
        np.testing.assert_allclose(whole[name][0], array.mean(0), rtol=1e-5)


def test_leaves_that_differ_in_type():
    """One is the same on all devices, one varies over another axis as well."""
    mesh = make_mesh((2, 4), ("y", "x"))

    def function(same, whole):
        tree = {"same": same, "whole": whole, "known": np.float32(3)}
        return [f(tree) for f in (lambda t: oriel.all_reduce(t, "x"), lambda t: lax.psum(t, "x"))]

    spec = {"same": P(), "whole": P("y"), "known": P()}
    mapped = over(mesh, function, (P(), P(("y", "x"))), [spec, spec])
    same, whole = np.arange(3, dtype=np.float32), np.arange(8, dtype=np.float32)
    assert_same(*mapped(same, whole))
    assert calls_of(mapped.lower(same, whole)) == [("all_reduce", 2)]


def test_partly_manual():
    mesh = make_mesh((2, 4), ("y", "x"))

    def function(tree):
        return oriel.all_reduce(tree, "x"), lax.psum(tree, "x")

    mapped = over(mesh, function, P("x"), P(), axis_names={"x"})
    tree = [np.arange(8.0), np.arange(24.0).reshape(8, 3)]
    assert_same(*mapped(tree))


# ---- by way of one array ------------------------------------------------------------------


@each_operation
def test_packed(operation, monkeypatch):
    """As on GPUs, where one array is sent for all."""
    monkeypatch.setattr(lists, "_packs", lambda ctx: True)
    mapped = over(make_mesh(), per_device(OURS[operation]), P("x"), P("x"))
    assert calls_of(mapped.lower(TREE)) == [(operation, 1)] * 3
    packed = mapped(TREE)
    monkeypatch.undo()
    assert_same(packed, over(make_mesh(), per_device(OURS[operation]), P("x"), P("x"))(TREE))


def test_arguments_are_checked_for_each():
    for tree, error in (
        ([1.0, "text"], TypeError),
        ([np.ones(3), np.array("2020", "M8[D]")], TypeError),
    ):
        with pytest.raises(error, match="oriel.all_gather"):
            over(make_mesh(), lambda v, tree=tree: oriel.all_gather([v, *tree], "x"))(np.ones(8))
