"""XLA leaves calls as the program has them. Those without a side effect it would merge where
they are equal and move out of loops, on a rank whose program allows it and not on another."""

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from kernels import several
from support import make_mesh, over

RING = [(i, (i + 1) % 8) for i in range(8)]


def ragged(v):
    ones, rank = jnp.ones(8, "int64"), jnp.full(8, lax.axis_index("x"))
    return oriel.ragged_all_to_all(
        v, jnp.zeros_like(v), jnp.arange(8), ones, rank, ones, axis_name="x"
    )


CALLS = {
    "all_reduce": lambda v: oriel.all_reduce(v, "x"),
    "all_gather": lambda v: oriel.all_gather(v, "x").sum(0),
    "reduce_scatter": lambda v: oriel.reduce_scatter(jnp.stack([v] * 8), "x"),
    "all_to_all": lambda v: oriel.all_to_all(v, "x", 0, 0, tiled=True),
    "broadcast": lambda v: oriel.broadcast(v, "x"),
    "permute": lambda v: oriel.permute(v, "x", RING),
    "barrier": lambda v: oriel.barrier(v, "x"),
    "ragged_all_to_all": ragged,
    "kernel": lambda v: several(np.dtype("float32"), "SUM").reduce(v, axis_name="x"),
    "op": None,
}


@pytest.fixture(params=CALLS)
def call(request):
    """(what a program calls, the target of its custom call)"""
    function = CALLS[request.param]
    if function is None:
        two_on = oriel.op(request.getfixturevalue("library"), "two_on")
        function = lambda v: two_on(v, out=(v.shape, v.shape), axis_name="x")[1]  # noqa: E731
    return function, f'custom_call_target="oriel_{request.param}"'


def compile_over(function):
    step = over(make_mesh(), function, P("x"), P("x"), check_vma=False)
    return step.lower(jnp.arange(64, dtype=jnp.float32)).compile()


def test_equal_calls_stay_two(call):
    function, target = call
    once = jax.jit(function)  # lowered once: the two have the same attributes
    program = compile_over(lambda v: once(v) + once(v))
    assert program.as_text().count(target) == 2
    x = jnp.arange(64, dtype=jnp.float32)
    one = over(make_mesh(), function, P("x"), P("x"), check_vma=False)(x)
    np.testing.assert_array_equal(program(x), 2 * one)


def by_fori_loop(function, v):
    return lax.fori_loop(0, 3, lambda _, total: total + function(v), v)


def by_scan(function, v):
    return lax.scan(lambda total, _: (total + function(v), None), v, length=3)[0]


@pytest.mark.parametrize("loop", [by_fori_loop, by_scan])
def test_a_call_stays_in_its_loop(call, loop):
    function, target = call
    text = compile_over(lambda v: loop(function, v)).as_text()
    bodies, entry = text.split("\nENTRY ")
    assert bodies.count(target) == 1 and target not in entry


def test_jax_drops_a_call_that_nothing_uses(call):
    function, target = call
    assert target not in compile_over(lambda v: (function(v), v)[1]).as_text()
