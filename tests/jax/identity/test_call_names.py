"""Every call of a program has a name of its own, whatever JAX lowers once and uses twice."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

N = 2


def shift(v):
    return oriel.permute(v, "x", [(i, (i + 1) % N) for i in range(N)])


@jax.jit
def inner(v):
    return shift(v) + 1


@jax.jit
def twice(v):
    return inner(inner(v))


@jax.custom_vjp
def doubled(v):
    return shift(v) * 2


doubled.defvjp(lambda v: (doubled(v), None), lambda saved, cotangent: (shift(cotangent) * 2,))


def body(carry, _):
    return inner(carry), None


def scans(v):
    return lax.scan(body, lax.scan(body, v, None, length=3)[0], None, length=3)[0]


_ahead = jax.extend.core.Primitive("ahead")
_ahead.def_abstract_eval(lambda aval: aval)


def _lower_ahead(ctx, v):
    three = float(jax.jit(lambda: jnp.float32(1) + 2).lower().compile()())
    return jax.interpreters.mlir.lower_fun(lambda w: w * three, multiple_results=False)(ctx, v)


jax.interpreters.mlir.register_lowering(_ahead, _lower_ahead, platform="cpu")

PROGRAMS = {
    "nested": (lambda v: twice(twice(v)), 4),
    "scans": (scans, 2),
    "while": (lambda v: lax.fori_loop(0, 3, lambda i, c: twice(c), twice(v)), 4),
    "cond": (lambda v: lax.cond(v.sum() > 0, twice, inner, v), 3),
    "custom": (lambda v: doubled(doubled(v)), 2),
    "checkpoint": (lambda v: jax.checkpoint(twice)(jax.checkpoint(twice)(v)), 4),
    "vmap": (lambda v: jax.vmap(twice)(jax.vmap(twice)(v)), 4),
    "list": (lambda v: sum(shift(w) for w in (v, v, v)), 3),
}


def sharded(function):
    mesh = Mesh(np.array(jax.devices()[:N]), "x")
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=P("x"), out_specs=P("x")))


def names(function):
    return names_in(sharded(function))


def names_in(program):
    text = program.lower(jnp.ones((N, 3))).as_text()
    return re.findall(r"\bname = (\d+)", text), re.findall(r"\bprogram = (\d+)", text)


@pytest.mark.parametrize("which", PROGRAMS)
def test_calls_have_names_of_their_own(which):
    function, count = PROGRAMS[which]
    found, programs = names(function)
    assert len(found) == count
    assert len(set(found)) == count
    assert len(set(programs)) == 1


def test_a_name_is_the_same_when_lowered_again():
    first = names(PROGRAMS["nested"][0])
    jax.clear_caches()
    assert names(PROGRAMS["nested"][0]) == first


def test_the_digest_tells_programs_apart():
    def one(v):
        return shift(v)

    def two(v):
        return shift(shift(v))

    def other_shape(v):
        return shift(v.reshape(-1)).reshape(v.shape)

    two.__name__ = other_shape.__name__ = "one"
    digests = [names(function)[1][0] for function in (one, two, other_shape)]
    assert len(set(digests)) == 3


def test_a_function_of_oriel_that_jax_traces_has_no_line():
    """Processes may trace it from different lines."""
    function = functools.partial(oriel.permute, axis_name="x", perm=[(0, 1)])
    function.__name__ = "function"
    x = jnp.ones((N, 3))
    first = sharded(function).lower(x).as_text()
    jax.clear_caches()
    second = sharded(function).lower(x).as_text()
    assert re.findall(r"name = \d+", first) == re.findall(r"name = \d+", second) != []


def test_a_module_is_named_when_it_is_whole():
    """JAX computes a constant on the way, by a program of its own."""

    @jax.jit
    def program(x):
        x = sharded(shift)(x)
        return sharded(shift)(_ahead.bind(x))

    found, programs = names_in(program)
    assert len(set(found)) == 2
    assert len(set(programs)) == 1


def test_a_module_that_failed_to_lower_leaves_no_trace():
    def failing(v):
        return _fails.bind(shift(v))

    with pytest.raises(NotImplementedError):
        sharded(failing).lower(jnp.ones((N, 3)))
    assert len(set(names(PROGRAMS["nested"][0])[0])) == 4


_fails = jax.extend.core.Primitive("fails")
_fails.def_abstract_eval(lambda aval: aval)


@pytest.mark.parametrize("which", PROGRAMS)
def test_they_compute_what_lax_does(which):
    function, _ = PROGRAMS[which]
    x = jnp.arange(N * 3.0).reshape(N, 3)
    ours = sharded(function)(x)
    jax.clear_caches()
    global shift
    before = shift
    try:
        shift = lambda v: lax.ppermute(v, "x", [(i, (i + 1) % N) for i in range(N)])  # noqa: E731
        theirs = sharded(function)(x)
    finally:
        shift = before
        jax.clear_caches()
    np.testing.assert_array_equal(ours, theirs)
