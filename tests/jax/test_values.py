"""Right elements, and the same bits everywhere: compared with NumPy, which adds
in group order as all_reduce promises."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from cases import DTYPES, MESHES, STEP, by_hand, draw_values
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P
from support import assert_bits, examples, make_mesh, over


def check(shape, dtype, op, mesh_shape, names, axes, order, seed):
    """Each device has a part of its own; every device's result is looked at."""
    mesh = make_mesh(mesh_shape, tuple(names), order)
    parts = draw_values(np.random.default_rng(seed), (*mesh_shape, *shape), dtype)
    lead = len(mesh_shape)

    def function(v):
        y = oriel.all_reduce(v.reshape(shape), tuple(axes), op)
        return y.reshape((1,) * lead + shape)

    got = np.asarray(over(mesh, function, P(*names), P(*names), check_vma=False)(parts))

    kept = [i for i, name in enumerate(names) if name not in axes]
    reduced = [i for i, name in enumerate(names) if name in axes]
    size = int(np.prod([mesh_shape[i] for i in reduced]))

    def in_groups(array):
        array = np.transpose(array, kept + reduced + list(range(lead, array.ndim)))
        return array.reshape(8 // size, size, *shape)

    for group, result in zip(in_groups(parts), in_groups(got), strict=True):
        expected = by_hand(group, op)
        for each in result:
            if dtype.kind == "c" and op == "prod":
                np.testing.assert_allclose(each, expected, rtol=1e-5)
            else:
                assert_bits(each, expected)
            assert each.tobytes() == result[0].tobytes()


@pytest.mark.parametrize("op", STEP)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_dtype(dtype, op):
    check((37,), dtype, op, (8,), "x", "x", None, 1)


@st.composite
def cases(draw):
    mesh_shape, names = draw(st.sampled_from(MESHES))
    axes = draw(st.permutations(names))[: draw(st.integers(1, len(names)))]
    return {
        "shape": draw(st.lists(st.integers(0, 9), max_size=3).map(tuple)),
        "dtype": draw(st.sampled_from(DTYPES)),
        "op": draw(st.sampled_from(list(STEP))),
        "mesh_shape": mesh_shape,
        "names": names,
        "axes": axes,
        "order": draw(st.permutations(range(8))),
        "seed": draw(st.integers(0, 1000)),
    }


@examples(60, soak=500)
@given(cases())
def test_any_shape_dtype_mesh(case):
    check(**case)


@pytest.mark.parametrize("count", [1, 3, 1023, 4097, 100_003, 1_000_001])
@pytest.mark.parametrize("name", ["float32", "int8"])
def test_sizes(count, name):
    check((count,), np.dtype(name), "sum", (8,), "x", "x", None, 2)


def test_special_values():
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, np.finfo(np.float32).max, 1e-45])
    parts = np.stack([np.roll(values, i) for i in range(8)]).astype(np.float32)
    for op in ("sum", "min", "max"):
        got = over(make_mesh(), lambda v: oriel.all_reduce(v, "x", op))(parts)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(np.asarray(got)[0], functools.reduce(STEP[op], parts))


def test_mean_divides_the_sum():
    parts = draw_values(np.random.default_rng(3), (8, 33), np.dtype(np.float32))
    got = over(make_mesh(), lambda v: oriel.all_reduce(v, "x", "mean"))(parts)
    np.testing.assert_array_equal(np.asarray(got)[0], by_hand(parts, "sum") / np.float32(8))


def test_unaligned_slices():
    x = (np.arange(8 * 101, dtype=np.float32) % 107).reshape(8, 101)

    def function(v, start):
        static = oriel.all_reduce(v[:, 1:38], "x")
        dynamic = oriel.all_reduce(jax.lax.dynamic_slice(v, (0, start), (1, 55)), "x")
        bytewise = oriel.all_reduce(v.astype(jnp.int8)[:, 3:], "x", "max")
        return static, dynamic, bytewise

    static, dynamic, bytewise = over(make_mesh(), function, (P("x"), P()))(x, 7)
    np.testing.assert_array_equal(static[0], x[:, 1:38].sum(0))
    np.testing.assert_array_equal(dynamic[0], x[:, 7:62].sum(0))
    np.testing.assert_array_equal(bytewise[0], x.astype(np.int8)[:, 3:].max(0))


def test_same_bits_in_every_run():
    parts = draw_values(np.random.default_rng(4), (8, 20_011), np.dtype(np.float32)) * 1e3
    step = over(make_mesh(), lambda v: oriel.all_reduce(v, "x"), P("x"), P("x"), check_vma=False)
    runs = {np.asarray(step(parts)).tobytes() for _ in range(20)}
    assert len(runs) == 1


def test_orders_of_axes_agree():
    parts = draw_values(np.random.default_rng(5), (4, 2, 501), np.dtype(np.float32))
    mesh = make_mesh((4, 2), ("x", "y"), [5, 3, 0, 7, 1, 6, 2, 4])
    results = {
        np.asarray(over(mesh, lambda v: oriel.all_reduce(v, axes), P("x", "y"))(parts)).tobytes()
        for axes in (("x", "y"), ("y", "x"))
    }
    assert len(results) == 1


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_scalars_and_nothing(shape):
    x = jnp.ones((8, *shape))
    got = over(make_mesh(), lambda v: oriel.all_reduce(v.reshape(shape), "x"))(x)
    assert got.shape == shape
    assert (np.asarray(got) == 8).all()


def test_empty_operand_makes_no_call():
    step = over(make_mesh(), lambda v: oriel.all_reduce(v, "x"))
    assert "oriel_all_reduce" in step.lower(jnp.ones((8, 2))).as_text()
    assert "custom_call @oriel" not in step.lower(jnp.ones((8, 0))).as_text()


def test_lone_device_makes_no_call():
    mesh = make_mesh((1, 8), ("one", "x"))
    step = over(mesh, lambda v: oriel.all_reduce(v, "one"), P(None, "x"), P(None, "x"))
    assert "custom_call @oriel" not in step.lower(jnp.ones((2, 8))).as_text()
