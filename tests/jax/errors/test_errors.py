"""Bad input: an exception in Python, which names the argument and its value."""

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support import make_mesh, over


def call(*arguments, **more):
    x = jnp.ones((8, 2))
    return over(make_mesh(), lambda v: oriel.all_reduce(*arguments, **more) + v, P("x"), P("x"))(x)


@pytest.mark.parametrize("op", ["median", "SUM", "", None, max, 0])
def test_op(op):
    with pytest.raises(
        ValueError,
        match="op must be one of sum, prod, min, max, and, or, xor, minloc, maxloc, mean; got",
    ):
        call(1.0, "x", op)


@pytest.mark.parametrize("via", ["NCCL", "", "auto,", 0, max])
def test_via(via):
    with pytest.raises(ValueError, match="via must be one of auto, peer, nccl, lsa, sym_peer"):
        call(1.0, "x", via=via)


@pytest.mark.parametrize("via", ["nccl", "lsa", "sym_peer", "multicast", "sym_multimem"])
def test_via_on_cpus(via):
    with pytest.raises(ValueError, match=f"all_reduce via '{via}' needs ranks that are GPUs"):
        call(1.0, "x", via=via)


@pytest.mark.parametrize("via", [None, "auto", "peer"])
def test_via_that_cpus_have(via):
    x = jnp.arange(16.0).reshape(8, 2)
    step = over(make_mesh(), lambda v: oriel.all_reduce(v, "x", via=via, memory_space="collective"))
    np.testing.assert_array_equal(step(x)[0], x.sum(0))


@pytest.mark.parametrize("space", ["symmetric", 1, ""])
def test_memory_space(space):
    with pytest.raises(ValueError, match="memory_space must be None or 'collective'; got"):
        call(1.0, "x", memory_space=space)


@pytest.mark.parametrize("x", ["abc", object(), [1.0, "abc"], {"a": b"raw"}])
def test_no_array(x):
    with pytest.raises(TypeError, match="oriel.all_reduce takes arrays; x holds"):
        call(x, "x", "max")


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float8_e4m3", "float8_e5m2fnuz"])
def test_dtype(dtype):
    with pytest.raises(TypeError, match=f"does not take dtype {dtype}"):
        over(make_mesh(), lambda v: oriel.all_reduce(v.astype(dtype), "x"))(jnp.ones((8, 2)))


def test_random_key():
    with pytest.raises(TypeError, match="does not take dtype key"):
        call(jax.random.key(0), "x")


@pytest.mark.parametrize("name", ["y", ("x", "y"), 7.5])
def test_unbound_axis(name):
    with pytest.raises(NameError, match="unbound axis name"):
        call(1.0, name)


def test_unbound_axis_in_a_plain_jit():
    with pytest.raises(NameError, match="unbound axis name: 'x'"):
        jax.jit(lambda v: oriel.all_reduce(v, "x"))(1.0)


@pytest.mark.parametrize("name", [{}, [["x"]], np.ones(2)])
def test_axis_that_is_no_name(name):
    with pytest.raises(TypeError, match="axis_name must be a name or a tuple of names, got"):
        call(1.0, name)


def test_repeated_axis():
    with pytest.raises(ValueError, match="repeats an axis"):
        call(1.0, ("x", "x"))


def test_no_axis_inside_shard_map():
    with pytest.raises(ValueError, match="name the axes: 'x'"):
        call(1.0)


def test_no_axis_with_many_devices():
    with pytest.raises(ValueError, match="8 devices in 1 processes"):
        jax.jit(oriel.all_reduce)(jnp.ones(3))


def test_sharded_operand_is_not_gathered(monkeypatch):
    """Even where the world would allow a call without an axis."""
    world = oriel._world.current()
    monkeypatch.setattr(world, "num_processes", world.size)
    x = jax.device_put(jnp.ones(8), NamedSharding(make_mesh(), P("x")))
    for function in (jax.jit(oriel.all_reduce), oriel.all_reduce):
        with pytest.raises(ValueError, match="program for 8 devices.*shard_map"):
            function(x)
    with pytest.raises(ValueError, match="program for 8 devices"):
        jax.jit(lambda v: oriel.all_reduce(v.sum()))(x)


def test_device_of_no_rank(monkeypatch):
    world = oriel._world.current()
    ranks = dict(world.rank_of)
    del ranks[5]
    monkeypatch.setattr(world, "rank_of", ranks)
    with pytest.raises(ValueError, match="no rank of this world"):
        over(make_mesh(), lambda v: oriel.all_reduce(v, "x"))(jnp.ones((8, 3)))


def test_nothing_is_broken_afterwards():
    got = over(make_mesh(), lambda v: oriel.all_reduce(v, "x"))(jnp.ones((8, 2)))
    np.testing.assert_array_equal(got, [[8.0, 8.0]])
