"""Whole programs that use JAX's rarer ways, once with lax's collectives and once with oriel's: the
same values, dtypes and structure."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax import lax
from jax.experimental import checkify
from jax.extend import core
from jax.sharding import PartitionSpec as P
from support import make_mesh


class Ours:
    """lax's names."""

    psum = staticmethod(oriel.all_reduce)
    psum_scatter = staticmethod(oriel.reduce_scatter)
    all_gather = staticmethod(oriel.all_gather)
    all_to_all = staticmethod(oriel.all_to_all)
    ppermute = staticmethod(oriel.permute)


def operand():
    return jnp.arange(64.0).reshape(16, 4) / 8


def smap(function, in_specs=P("x"), out_specs=P("x"), mesh=None, **more):
    mesh = mesh or make_mesh((4, 2), ("x", "y"))
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **more)


RING = [(i, (i + 1) % 4) for i in range(4)]


def eager(o):
    def function(v):
        moved = o.ppermute(v, "x", RING) + o.all_to_all(v, "x", 0, 0, tiled=True)
        part = o.psum_scatter(o.all_gather(v, "x", tiled=True), "x", tiled=True)
        return moved + part + o.psum(v, "x")

    return smap(function)(operand())


def eager_grad(o):
    return jax.grad(lambda x: smap(lambda v: o.psum(jnp.sin(v).sum(), "x"), P("x"), P())(x))(
        operand()
    )


def transposed(o):
    step = jax.jit(smap(lambda v: o.psum(v, "x"), P("x"), P()))
    return jax.linear_transpose(step, operand())(jnp.ones((4, 4)))


def kept_by_policy(o):
    keep = functools.partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    inner = keep(lambda v: o.psum(jnp.sin(o.ppermute(v, "x", RING)).sum(), "x"))
    return jax.jit(jax.grad(smap(inner, P("x"), P())))(operand())


def own_derivative(o):
    @jax.custom_vjp
    def total(v):
        return o.psum(v, "x")

    back = lambda _, cotangent: (lax.pcast(2 * cotangent, "x", to="varying"),)  # noqa: E731
    total.defvjp(lambda v: (total(v), ()), back)
    return jax.jit(jax.grad(smap(lambda v: total(v).sum(), P("x"), P())))(operand())


def jacobians(o):
    step = smap(lambda v: o.all_gather(v**3, "x", tiled=True), P("x"), P(), check_vma=False)
    return jax.jit(jax.jacrev(step))(jnp.arange(4.0)), jax.jit(jax.jacfwd(step))(jnp.arange(4.0))


def mapped_by_axis(o):
    step = smap(lambda v: o.all_gather(v, "x", tiled=True), P("x"), P(), check_vma=False)
    return jax.jit(jax.vmap(step, spmd_axis_name="y"))(operand().reshape(4, 4, 4))


def nested(o):
    mesh = make_mesh((4, 2), ("x", "y"))
    with jax.set_mesh(mesh):
        inner = jax.shard_map(
            lambda v: o.psum(v, "y"), in_specs=P(None, "y"), out_specs=P(), axis_names={"y"}
        )
        outer = jax.shard_map(
            lambda v: inner(o.psum(v, "x")),
            in_specs=P("x"),
            out_specs=P(),
            axis_names={"x"},
            check_vma=False,
        )
        return jax.jit(outer)(operand())


def without_jit(o):
    with jax.disable_jit():
        mapped = jax.vmap(lambda v: o.psum(v, "i"), axis_name="i")(operand())
        return mapped, smap(lambda v: o.psum(2 * v, "x"), P("x"), P())(operand())


def checked(o):
    error, y = jax.jit(checkify.checkify(smap(lambda v: o.psum(v, "x"), P("x"), P())))(operand())
    return error.get() or "", y


def without_nans(o):
    with jax.debug_nans(True):
        return jax.jit(smap(lambda v: o.psum(v, "x"), P("x"), P()))(operand())


def traced_before(o):
    jaxpr = jax.make_jaxpr(smap(lambda v: o.psum(jnp.sin(v), "x"), P("x"), P()))(operand())
    return jax.jit(core.jaxpr_as_fun(jaxpr))(operand())


def loop_ended_by_a_sum(o):
    grows = lambda v: o.psum(v.sum(), "x") < 1000  # noqa: E731
    return jax.jit(smap(lambda v: lax.while_loop(grows, lambda w: 2 * w, v)))(operand() + 1)


def branch_with_a_call(o):
    def function(v):
        large = o.psum(v.sum(), "x") > 3
        return lax.cond(large, lambda w: o.all_gather(w, "x").sum(0), lambda w: 1.0 * w, v)

    return jax.jit(smap(function))(operand())


def transform_of_rows(o):
    def function(v):
        columns = jnp.fft.fft(o.all_to_all(v, "x", 1, 0, tiled=True), axis=0)
        return o.all_to_all(columns, "x", 0, 1, tiled=True)

    return jax.jit(smap(function))(operand())


def ahead_of_time(o):
    mesh = make_mesh((4, 2), ("x", "y"))
    step = jax.jit(smap(lambda v: o.psum(v, "x"), P("x"), P(), mesh)).lower(operand()).compile()
    return step(jax.device_put(operand(), jax.NamedSharding(mesh, P("x"))))


PROGRAMS = [
    eager,
    eager_grad,
    transposed,
    kept_by_policy,
    own_derivative,
    jacobians,
    mapped_by_axis,
    nested,
    without_jit,
    checked,
    without_nans,
    traced_before,
    loop_ended_by_a_sum,
    branch_with_a_call,
    transform_of_rows,
    ahead_of_time,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(program):
    ours, theirs = program(Ours), program(lax)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        if a.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(a, b)
