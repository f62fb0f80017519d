"""Bad input to the family: an exception in Python, which names the argument and
its value, as lax raises or better."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support import make_mesh, over, run_plain

CALLS = {
    "all_gather": lambda x, name="x": oriel.all_gather(x, name),
    "reduce_scatter": lambda x, name="x": oriel.reduce_scatter(x, name, tiled=True),
    "all_to_all": lambda x, name="x": oriel.all_to_all(x, name, 0, 0, tiled=True),
    "broadcast": lambda x, name="x": oriel.broadcast(x, name),
    "permute": lambda x, name="x": oriel.permute(x, name, [(0, 0)]),
    "barrier": lambda x, name="x": oriel.barrier(x, name),
}
each_call = pytest.mark.parametrize("name", CALLS)


def run(function, shape=(8, 8)):
    return over(make_mesh(), function, P(), P("x"))(jnp.ones(shape))


@pytest.mark.parametrize(
    "function, text",
    [
        (lambda v: oriel.all_gather(v, "x", axis=3), "axis is 3, out of bounds for an array of 3"),
        (lambda v: oriel.all_gather(v, "x", axis=2, tiled=True), "axis is 2, .* array of 2"),
        (lambda v: oriel.all_gather(v, "x", axis=-4), "axis is -4"),
        (lambda v: oriel.all_gather(v[0, 0], "x", tiled=True), "axis is 0, .* array of 0"),
        (lambda v: oriel.reduce_scatter(v, "x", 2), "scatter_dimension is 2"),
        (lambda v: oriel.reduce_scatter(v[:3], "x"), "has size 3, but there are 8 devices"),
        (lambda v: oriel.reduce_scatter(v[:3], "x", tiled=True), "size 3, which 8 devices do not"),
        (lambda v: oriel.reduce_scatter(v, "x", op="median"), "op must be one of .*'median'"),
        (lambda v: oriel.all_to_all(v, "x", 2, 0), "split_axis is 2"),
        (lambda v: oriel.all_to_all(v, "x", 0, -3), "concat_axis is -3"),
        (lambda v: oriel.all_to_all(v[:, :3], "x", 1, 0), "has size 3, but there are 8"),
        (lambda v: oriel.all_to_all(v[:, :3], "x", 1, 0, tiled=True), "which 8 devices do not"),
        (lambda v: oriel.broadcast(v, "x", 8), "root is 8, but there are 8 devices"),
        (lambda v: oriel.broadcast(v, "x", -1), "root is -1"),
        (lambda v: oriel.permute(v, "x", [(0, 8)]), "names device 8, but there are 8"),
        (lambda v: oriel.permute(v, "x", [(0, 1), (0, 2)]), "destinations must be unique"),
        (lambda v: oriel.permute(v, "x", [(0, 1), (2, 1)]), "destinations must be unique"),
        (lambda v: oriel.permute(v, "x", [(0, 1), (-8, 2)]), "destinations must be unique"),
    ],
)
def test_value(function, text):
    with pytest.raises(ValueError, match=text):
        run(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda v: oriel.all_gather(v, "x", axis="0"),
        lambda v: oriel.reduce_scatter(v, "x", 0.5),
        lambda v: oriel.all_to_all(v, "x", None, 0),
        lambda v: oriel.broadcast(v, "x", "root"),
        lambda v: oriel.broadcast(v, "x", v[0, 0].astype(int)),
        lambda v: oriel.permute(v, "x", [(0, 1, 2)]),
        lambda v: oriel.permute(v, "x", [0, 1]),
        lambda v: oriel.permute(v, "x", 3),
        lambda v: oriel.permute(v, "x", [(0.5, 1)]),
    ],
)
def test_type(function):
    names = r"oriel\.\w+: (axis|scatter_dimension|\w+_axis|root|perm) "
    with pytest.raises(TypeError, match=names):
        run(function)


@each_call
def test_no_array(name):
    for x in ("abc", object(), [b"raw"]):
        with pytest.raises(TypeError, match=f"oriel.{name} takes arrays; x holds"):
            run(lambda v: CALLS[name](x))


@each_call
def test_dtype(name):
    dtype = "int4" if name == "reduce_scatter" else "int1"  # which JAX itself has hardly
    with pytest.raises(TypeError, match=f"oriel.{name} does not take dtype {dtype}"):
        run(lambda v: CALLS[name](v.astype(dtype)))


@each_call
def test_axes(name):
    with pytest.raises(NameError, match=f"unbound axis name: 'y'. Call oriel.{name}"):
        run(lambda v: CALLS[name](v, ("x", "y")))
    with pytest.raises(NameError, match="unbound axis name: 0"):
        run(lambda v: CALLS[name](v, 0))
    with pytest.raises(TypeError, match="axis_name must be a name"):
        run(lambda v: CALLS[name](v, {}))
    with pytest.raises(ValueError, match="repeats an axis"):
        run(lambda v: CALLS[name](v, ("x", "x")))
    with pytest.raises(ValueError, match=f"oriel.{name} without axis_name.*name the axes: 'x'"):
        run(lambda v: CALLS[name](v, None))
    with pytest.raises(ValueError, match=f"oriel.{name} .*8 devices in 1 processes"):
        jax.jit(lambda v: CALLS[name](v, None))(jnp.ones(8))


@each_call
def test_sharded_operand_is_not_gathered(name, monkeypatch):
    """Even where the world would allow a call without an axis."""
    world = oriel._world.current()
    monkeypatch.setattr(world, "num_processes", world.size)
    x = jax.device_put(jnp.ones(64), NamedSharding(make_mesh(), P("x")))
    with pytest.raises(ValueError, match=f"oriel.{name} .*program for 8 devices.*shard_map"):
        jax.jit(lambda v: CALLS[name](v, None))(x)


def test_permute_in_another_order_than_the_mesh():
    mesh = make_mesh((4, 2), ("a", "b"))
    mapped = over(mesh, lambda v: oriel.permute(v, ("b", "a"), [(0, 1)]), P("a"), P(("a", "b")))
    with pytest.raises(ValueError, match="name the axes in this order"):
        mapped(jnp.ones(8))


def test_not_initialised():
    step = over(make_mesh(), lambda v: oriel.all_gather(v, "x"), P("x"), P("x"))
    expected = np.asarray(step(jnp.ones((8, 2))))
    oriel.finalize()
    try:
        with pytest.raises(Exception, match="all_gather: oriel is not initialised"):
            step(jnp.ones((8, 2))).block_until_ready()
    finally:
        oriel.init()
    np.testing.assert_array_equal(step(jnp.ones((8, 2))), expected)


@pytest.mark.parametrize(
    "case, text",
    [
        ("operands", "the call has 2 operands"),
        ("scalar", "rows of 0 elements in the operand and of 3"),
        ("rows", "rows of 3 elements in the operand and of 2"),
        ("no rows", "but send has 0 rows"),
        ("output", "operand 1 has 24 elements of XLA dtype 11, its result 12"),
        ("arrays", "operand 3 has XLA dtype 5 and 4 elements"),
    ],
)
def test_made_by_hand(case, text):
    status, output = run_plain(Path(__file__).with_name("hand_made.py"), case, devices=2)
    assert status == 0 and text in output
