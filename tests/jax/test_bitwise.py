"""and, or and xor against NumPy, over axes of devices and of vmap."""

import functools

import jax
import numpy as np
import oriel
import pytest
from jax.sharding import PartitionSpec as P
from support import make_mesh, over

STEP = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
DTYPES = [
    np.dtype(name) for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
]


def draw(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    if dtype == bool:
        return rng.integers(0, 8, shape) > 0
    info = np.iinfo(dtype)
    bits = rng.integers(info.min, info.max, (3, *shape), dtype=dtype, endpoint=True)
    return bits[0] | bits[1] | bits[2]  # so that something is left of an "and"


@pytest.mark.parametrize("op", STEP)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_over_devices(dtype, op):
    seed = DTYPES.index(dtype)
    for count in (1, 37, 5003):
        parts = draw(seed, (8, 8 * count), dtype)
        expected = functools.reduce(STEP[op], parts)
        reduced = over(make_mesh(), lambda v: oriel.all_reduce(v, "x", op))(parts)
        np.testing.assert_array_equal(np.asarray(reduced)[0], expected)
        assert reduced.dtype == dtype
        scattered = over(
            make_mesh(),
            lambda v: oriel.reduce_scatter(v[0], "x", tiled=True, op=op),
            P("x"),
            P("x"),
        )(parts)
        np.testing.assert_array_equal(np.asarray(scattered), expected)


@pytest.mark.parametrize("op", STEP)
def test_over_vmap(op):
    parts = draw(3, (5, 8, 11), np.dtype(np.int16))
    expected = functools.reduce(STEP[op], parts.reshape(40, 11))

    def function(v):
        return jax.vmap(lambda w: oriel.all_reduce(w, ("x", "v"), op), axis_name="v")(v[:, 0])

    got = over(make_mesh(), function, P(None, "x"), P())(parts)
    for row in np.asarray(got):
        np.testing.assert_array_equal(row, expected)

    def same(v):  # not batched: as often as the axis is long
        return jax.vmap(lambda _: oriel.all_reduce(v, ("x", "v"), op), axis_name="v", axis_size=5)(
            np.arange(5)
        )

    got = over(make_mesh(), same, P("x"), P())(parts[0])
    one = functools.reduce(STEP[op], [part for part in parts[0] for _ in range(5)])
    np.testing.assert_array_equal(np.asarray(got)[0, 0], one)


@pytest.mark.parametrize("op", STEP)
def test_floats_are_refused(op):
    for function in (oriel.all_reduce, oriel.reduce_scatter):
        with pytest.raises(TypeError, match=f"'{op}' combines the bits of integers and booleans"):
            over(make_mesh(), lambda v: function(v, "x", op=op))(np.ones((8, 8), np.float32))


@pytest.mark.parametrize("op", ["minloc", "maxloc"])
def test_who_has_it(op):
    find, best = {"minloc": (np.argmin, np.min), "maxloc": (np.argmax, np.max)}[op]
    rng = np.random.default_rng(5)
    floats = rng.choice(np.array([-1, -0.0, 0, 3, np.nan, np.inf], np.float32), (8, 1001))
    tree = {"floats": floats, "whole": rng.integers(-3, 3, (8, 7, 5)).astype(np.int16)}

    def function(v):
        return oriel.all_reduce(v, "x", op)

    got = over(make_mesh(), function)(tree)
    for name, parts in tree.items():
        values, places = map(np.asarray, got[name])
        assert values.dtype == parts.dtype and places.dtype == np.int32
        np.testing.assert_array_equal(values[0], best(parts, 0))
        np.testing.assert_array_equal(places[0], find(parts, 0))
    mesh = make_mesh((4, 2), ("x", "y"))
    both = over(
        mesh,
        lambda v: oriel.all_reduce(v, ("x", "y"), op)[1],
        P(("x", "y")),
        P(("x", "y")),
        check_vma=False,
    )
    np.testing.assert_array_equal(np.asarray(both(floats))[3], find(floats, 0))
    with pytest.raises(ValueError, match="axes of devices"):
        over(mesh, lambda v: oriel.all_reduce(v, 0, op)[0])(floats)
