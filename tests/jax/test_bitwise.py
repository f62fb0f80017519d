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
