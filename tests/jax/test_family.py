"""all_gather, reduce_scatter, all_to_all, broadcast, permute and barrier: right
elements on every device, compared with lax and with NumPy; likewise all_reduce of
floats."""

import functools

import cases
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import oriel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P
from support import assert_bits, assert_same, examples, make_mesh, over, picker

each_operation = pytest.mark.parametrize("operation", cases.OPERATIONS)


def check(case, seed, check_vma):
    """Against NumPy with its steps in the same order and dtype, which gives the same
    bits; NumPy in float64, where that rounds less; and lax."""
    mesh = make_mesh(case.mesh_shape, tuple(case.names), case.order)
    parts = case.draw(seed)
    lax_has_it = case.lax_has_it()

    def function(v):
        return case.ours(v), case.theirs(v) if lax_has_it else None

    got, theirs = over(mesh, function, case.spec, case.spec, check_vma)(parts)
    expected = case.expected(parts)
    if case.dtype.kind == "c" and case.arguments.get("op") == "prod":
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    else:
        assert_bits(got, expected)
    if case.rounds():
        value, scale = case.in_float64(parts)
        assert_near(case, got, value, case.error(value, scale))
        if lax_has_it:
            assert_near(case, got, theirs, 2 * case.error(value, scale, narrow=True))
    elif lax_has_it:
        assert_bits(got, theirs)


def assert_near(case, got, wanted, error):
    """No further off than `error`; what the dtype has no numbers for is not compared."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == case.dtype and got.shape == wanted.shape
    wide = "complex128" if case.dtype.kind == "c" else "float64"
    got, wanted = got.astype(wide), wanted.astype(wide)
    held = np.abs(wanted) <= float(ml_dtypes.finfo(case.dtype).max)
    off = np.abs(got - wanted)
    assert (off <= error)[held].all(), f"{case}: off by {off[held].max()}"


@examples(25, soak=400)
@given(st.data())
@each_operation
def test_any_call(operation, data):
    pick = picker(data)
    check(cases.draw_case(pick, operation), pick(list(range(100))), pick([True, False]))


@examples(40, soak=400)
@given(st.data())
@pytest.mark.parametrize("operation", cases.REDUCTIONS)
def test_any_reduction_of_floats(operation, data):
    pick = picker(data)
    case = cases.draw_case(pick, operation, cases.FLOATS, lengths=(1, 2, 5, 37))
    check(case, pick(list(range(100))), pick([True, False]))


SIMPLE = {  # of an operand of shape (8, 3)
    "all_gather": {"axis": 1, "tiled": False},
    "reduce_scatter": {"scatter_dimension": 0, "tiled": True, "op": "sum"},
    "all_to_all": {"split_axis": 0, "concat_axis": 1, "tiled": True},
    "broadcast": {"root": 5},
    "permute": {"perm": [(0, 3), (3, 0), (7, 1)]},
}


def simple(operation, dtype, length=3, **arguments):
    arguments = SIMPLE[operation] | arguments
    return cases.Case(operation, (8, length), dtype, (8,), "x", ("x",), tuple(range(8)), arguments)


@pytest.mark.parametrize("dtype", cases.DTYPES, ids=lambda dtype: dtype.name)
def test_dtype(dtype):
    """One program for all: what takes time here is compiling."""
    ops = [simple(name, dtype) for name in cases.OPERATIONS]
    ops += [simple("reduce_scatter", dtype, op=op) for op in ("prod", "min", "max")]
    parts = ops[0].draw(1)
    mapped = over(make_mesh(), lambda v: [case.ours(v) for case in ops], P("x"), P("x"))
    for case, got in zip(ops, mapped(parts), strict=True):
        if dtype.kind == "c" and case.arguments.get("op") == "prod":
            np.testing.assert_allclose(got, case.expected(parts), rtol=1e-5)
        else:
            assert_bits(got, case.expected(parts))


@pytest.mark.parametrize("length", [1, 1023, 20_011])
@each_operation
def test_sizes(operation, length):
    case = simple(operation, np.dtype("float32"), length)
    parts = case.draw(2)
    assert_bits(over(make_mesh(), case.ours, P("x"), P("x"))(parts), case.expected(parts))


def test_scatter_has_the_bits_of_all_reduce():
    """Whatever the order of the axes."""
    mesh = make_mesh((4, 2), ("x", "y"), [5, 3, 0, 7, 1, 6, 2, 4])
    parts = cases.draw_values(np.random.default_rng(5), (8, 8 * 501), np.dtype("float32"))

    def function(v):
        v = v.reshape(-1)
        whole = oriel.all_reduce(v, ("x", "y"))
        pieces = [
            oriel.all_gather(oriel.reduce_scatter(v, axes, tiled=True), axes, tiled=True)
            for axes in (("x", "y"), ("y", "x"))
        ]
        return jnp.stack([whole, *pieces])[None]

    for whole, *pieces in np.asarray(over(mesh, function, P(("x", "y")), P(("x", "y")))(parts)):
        for piece in pieces:
            assert piece.tobytes() == whole.tobytes()


def test_mean():
    parts = cases.draw_values(np.random.default_rng(3), (8, 16), np.dtype("float32"))
    total = cases.by_hand(parts, "sum")

    def function(v):
        return oriel.reduce_scatter(v[0], "x", tiled=True, op="mean")

    mapped = over(make_mesh(), function, P("x"), P("x"))
    np.testing.assert_array_equal(mapped(parts), total / np.float32(8))


def test_pytree():
    def function(v):
        tree = {"a": v, "b": (v.astype(jnp.int8), None, [v > 0])}
        return [
            oriel.all_gather(tree, "x", tiled=True),
            oriel.all_to_all(tree, "x", 1, 1, tiled=True),
            oriel.broadcast(tree, "x", root=3),
            oriel.permute(tree, "x", [(0, 1)]),
            oriel.barrier(tree, "x"),
            oriel.reduce_scatter(tree, "x", 1, tiled=True, op="max"),
        ]

    results = over(make_mesh(), function, P("x"), P("x"))(jnp.arange(64.0).reshape(8, 8))
    for result in results:
        assert result["b"][1] is None
        assert_same(result["b"][0], result["a"].astype(jnp.int8))
        assert result["b"][2][0].dtype == bool


def test_constants_and_scalars():
    def function(v):
        return (
            oriel.all_gather(2.5, "x") + v,
            oriel.all_gather(v[0], "x"),
            oriel.broadcast(np.arange(8.0), "x", root=1) + v,
            oriel.permute(3, "x", [(0, 0)]) + v,
            oriel.reduce_scatter(np.arange(8.0), "x") + v,
            oriel.all_to_all(np.arange(8.0), "x", 0, 0) + v,
            oriel.barrier(1.0, "x") + v,
        )

    results = over(make_mesh(), function, P("x"), P("x"))(jnp.zeros(8))
    index = np.repeat(np.arange(8.0), 8)
    expected = [
        np.full(64, 2.5),
        np.zeros(64),
        np.tile(np.arange(8.0), 8),
        3.0 * (np.arange(8) == 0),
        8 * np.arange(8.0),
        index,
        np.ones(8),
    ]
    for got, table in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got, table)


def test_no_axes():
    """As in lax: nobody to talk to."""
    x = jnp.arange(6.0).reshape(1, 6)
    assert_same(oriel.all_gather(x, ()), lax.all_gather(x, ()))
    assert_same(oriel.reduce_scatter(x, ()), lax.psum_scatter(x, ()))
    assert_same(oriel.all_to_all(x, (), 0, 1), x.T)
    for got in (
        oriel.broadcast(x, ()),
        oriel.permute(x, (), [(0, 0)]),
        oriel.barrier(x, ()),
        oriel.all_to_all(x, (), 0, 1, tiled=True),
    ):
        assert_same(got, x)
    assert_same(oriel.permute(x, (), []), 0 * x)


def test_nothing_to_send_makes_no_call():
    def function(axes, v):
        return (
            oriel.all_gather(v, axes, tiled=True),
            oriel.reduce_scatter(v, axes, tiled=True),
            oriel.all_to_all(v, axes, 0, 0, tiled=True),
            oriel.broadcast(v, axes),
            oriel.permute(v, axes, [(0, 0)]),
        )

    mesh = make_mesh((1, 8), ("one", "x"))
    kinds = (("x", (64, 1), True), ("x", (64, 0), False), ("one", (64, 1), False))
    for axes, shape, calls in kinds:
        step = over(mesh, functools.partial(function, axes), P("x"), P("x"), check_vma=False)
        text = step.lower(jnp.ones(shape)).as_text()
        for operation in cases.OPERATIONS:
            assert (f"custom_call @oriel_{operation}" in text) == calls
        if axes == "one":
            for result in step(jnp.arange(64.0).reshape(shape)):
                assert_same(result, jnp.arange(64.0).reshape(shape))


def test_first_dimension_is_not_transposed():
    def function(v):
        return (
            oriel.all_gather(v, "x", tiled=True),
            oriel.reduce_scatter(v, "x", tiled=True),
            oriel.all_to_all(v, "x", 0, 0, tiled=True),
        )

    text = over(make_mesh(), function, P("x"), P("x")).lower(jnp.ones((64, 3))).as_text()
    assert "custom_call @oriel_all_to_all" in text and "transpose" not in text


def test_operations_of_one_program_in_any_order():
    """Independent calls of all kinds, among equal ones."""

    def function(v):
        results = []
        for i in range(4):
            w = v + i
            results += [
                oriel.all_reduce(w, "x").sum(),
                oriel.all_gather(w, "x").sum(),
                oriel.reduce_scatter(oriel.all_gather(w, "x"), "x").sum(),
                oriel.all_to_all(jnp.tile(w, (8, 1)), "x", 0, 0).sum(),
                oriel.broadcast(w, "x", root=i).sum(),
                oriel.permute(w, "x", [(0, i)]).sum(),
                oriel.barrier(w, "x").sum(),
            ]
        return jnp.stack(results)[None]

    x = np.arange(16.0).reshape(8, 2)
    step = over(make_mesh(), function, P("x"), P("x"))
    for _ in range(5):
        got = np.asarray(step(x)).reshape(8, 4, 7)
        for i in range(4):
            w = x + i
            total = w.sum()
            expected = np.stack(
                [np.full(8, total)] * 2
                + [
                    8 * w.sum(1),
                    np.full(8, total),
                    np.full(8, w[i].sum()),
                    np.where(np.arange(8) == i, w[0].sum(), 0),
                    w.sum(1),
                ],
                1,
            )
            np.testing.assert_array_equal(got[:, i], expected)


def test_barrier_copies_nothing_it_need_not():
    x = np.arange(32.0).reshape(8, 4)

    def function(v):
        y = oriel.barrier({"a": v, "b": v.astype(jnp.int32)}, "x")
        return v + y["a"], y["b"]

    total, whole = over(make_mesh(), function, P("x"), P("x"))(x)
    np.testing.assert_array_equal(total, 2 * x)
    np.testing.assert_array_equal(whole, x.astype(np.int32))


def test_pmap():
    x = jnp.arange(64.0).reshape(8, 8)
    for f in (
        lambda o, v: o.all_gather(v, "d"),
        lambda o, v: o.all_to_all(v, "d", 0, 0),
    ):
        assert_same(*(jax.pmap(functools.partial(f, o), axis_name="d")(x) for o in (oriel, lax)))
