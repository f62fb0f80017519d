"""oriel.op: a host function of one's own."""

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax.sharding import PartitionSpec as P
from support import make_mesh, over, run_processes


def spec(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype)


def test_everything_it_gets(library):
    add_up = oriel.op(library, "add_up")
    x = jnp.arange(48.0, dtype=jnp.float32).reshape(8, 6)
    y, seen = over(
        make_mesh((4, 2), ("x", "y")),
        lambda v: add_up(
            v.reshape(2, 3),
            out=(spec(2, 3), spec(8, dtype="int64")),
            axis_name="x",
            factor=0.5,
            title="wörld",
            count=-7,
        ),
        P(("x", "y")),
        P(("x", "y")),
    )(x)
    parts = np.asarray(x).reshape(4, 2, 6)
    expected = 0.5 * np.broadcast_to(parts.sum(0), (4, 2, 6)).reshape(16, 3)
    np.testing.assert_array_equal(y, expected)
    for i, row in enumerate(np.asarray(seen).reshape(8, 8)):
        assert list(row) == [i // 2, 4, 2, 3, 6, -7, 3, 1]


def test_barrier_vmap_and_gradient(library):
    two_on = oriel.op(library, "two_on")
    x = jnp.arange(8.0, dtype=jnp.float32)

    def run(function):
        return over(make_mesh(), function, P("x"), P("x"), check_vma=False)(x)

    out = ((1,), spec(1))  # a shape has the dtype of the first operand
    np.testing.assert_array_equal(
        run(lambda v: two_on(v, out=out, axis_name="x")[1]), np.roll(x, 2)
    )
    stacked = run(
        lambda v: jax.vmap(lambda u: two_on(u, out=out, axis_name="x")[1])(
            jnp.stack([v, v + 1])
        ).sum(0)
    )
    np.testing.assert_array_equal(stacked, 2 * np.roll(x, 2) + 1)
    with pytest.raises(TypeError, match="op two_on has no derivative"):
        run(lambda v: jax.grad(lambda u: two_on(u, out=out, axis_name="x")[1].sum())(v))


def test_wrong_calls(library, tmp_path):
    with pytest.raises(TypeError, match="library must be a path, got None"):
        oriel.op(None, "mine")
    with pytest.raises(oriel.OrielError, match="nowhere.so cannot be loaded"):
        oriel.op(tmp_path / "nowhere.so", "mine")
    with pytest.raises(oriel.OrielError, match="libmine.so exports no function 'mine'"):
        oriel.op(library, "mine")
    with pytest.raises(ValueError, match="must be that of a function, got 'a b'"):
        oriel.op(library, "a b")
    add_up = oriel.op(library, "add_up")
    x = np.zeros(8, np.float32)
    for arguments, keywords, error, said in [
        ([], {}, TypeError, "op add_up needs an operand"),
        ([x], {"out": ("a",)}, TypeError, r"out 0 must be a shape or a jax.ShapeDtypeStruct"),
        ([x], {"out": (-3,)}, ValueError, r"out 0 has a negative dimension, \(-3,\)"),
        ([x], {"a": 2**64}, TypeError, "attribute 'a' must be an integer of 64 bits"),
        ([x], {"a": [1]}, TypeError, r"attribute 'a' must be .* got \[1\]"),
        ([x.reshape((1,) * 8 + (8,))], {}, ValueError, "operand 0 has 9 dimensions, more than 8"),
        ([x] * 64, {}, ValueError, "64 operands and 1 results are more than 64"),
    ]:
        with pytest.raises(error, match=said):
            over(make_mesh(), lambda v: add_up(*arguments, axis_name="x", **keywords))(x)


def test_function_that_fails(library):
    """On all ranks, two of them in one process."""
    status, output, reports = run_processes("op_fail.py", library, processes=2, devices=2)
    assert status == 0, output
    for process in range(2):
        (entry,) = reports[process]
        assert "op refuse(f32[2]) -> f32[2] on rank" in entry["raised"]
        assert "rank 1: op refuse: rank 1 has no wish to" in entry["raised"]
