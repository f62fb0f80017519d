"""Which devices reduce with which: meshes of every kind."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from support import assert_same, make_mesh, over

SHUFFLED = [3, 1, 4, 0, 5, 2, 7, 6]
ORDERS = [None, SHUFFLED]


def table():
    return jnp.arange(64.0).reshape(8, 8)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("axes, out", [("a", P(None, "b")), ("b", P("a")), (("b", "a"), P())])
def test_two_axes(axes, out, order):
    mesh = make_mesh((4, 2), ("a", "b"), order)
    assert_same(
        *(
            over(mesh, lambda v: f(v, axes), P("a", "b"), out)(table())
            for f in (oriel.all_reduce, lax.psum)
        )
    )


def test_part_of_the_devices():
    mesh = jax.sharding.Mesh(np.array(jax.devices())[[6, 1, 3]], ("x",))
    x = jnp.arange(6.0).reshape(3, 2)
    got = over(mesh, lambda v: oriel.all_reduce(v, "x"))(x)
    np.testing.assert_array_equal(got, [[6.0, 9.0]])


def test_one_function_on_permuted_meshes():
    """The same function and shapes: JAX must not reuse the groups of one mesh."""

    def function(mesh, v):
        return jax.shard_map(
            lambda w: oriel.all_reduce(w, "a"),
            mesh=mesh,
            in_specs=P("a", "b"),
            out_specs=P("a", "b"),
            check_vma=False,
        )(v)

    step = jax.jit(function, static_argnums=0)
    expected = np.tile(np.asarray(table()).reshape(4, 2, 8).sum(0), (4, 1))
    for order in [None, SHUFFLED, SHUFFLED[::-1], None]:
        np.testing.assert_array_equal(step(make_mesh((4, 2), ("a", "b"), order), table()), expected)


def test_mesh_from_context():
    step = jax.jit(
        jax.shard_map(
            lambda v: (oriel.all_reduce(v, "a"), oriel.all_reduce(2 * v, "a")),
            in_specs=P("a", "b"),
            out_specs=P(None, "b"),
        )
    )
    expected = np.asarray(table()).reshape(4, 2, 8).sum(0)
    for order in [None, SHUFFLED, SHUFFLED[::-1], None]:
        mesh = make_mesh((4, 2), ("a", "b"), order)
        with jax.set_mesh(mesh):
            once, twice = step(jax.device_put(table(), NamedSharding(mesh, P("a", "b"))))
            np.testing.assert_array_equal(once, expected)
            np.testing.assert_array_equal(twice, 2 * expected)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_partly_manual(order, check_vma, kind):
    mesh = make_mesh((4, 2), ("a", "b"), order, kind)
    x = jax.device_put(table(), NamedSharding(mesh, P("a", "b")))
    results = []
    for f in (oriel.all_reduce, lax.psum):
        step = jax.jit(
            jax.shard_map(
                lambda v: f(v * 2, "a") + 1,
                mesh=mesh,
                in_specs=P("a"),
                out_specs=P(),
                axis_names={"a"},
                check_vma=check_vma,
            )
        )
        with jax.set_mesh(mesh):
            results.append(step(x))
    assert_same(*results)


def test_grad_of_partly_manual():
    mesh = make_mesh((4, 2), ("a", "b"), SHUFFLED)
    x = jax.device_put(table(), NamedSharding(mesh, P("a", "b")))

    def gradient(f):
        step = over(mesh, lambda v: f(jnp.sin(v), "a") * v, P("a"), P("a"), axis_names={"a"})
        return jax.jit(jax.grad(lambda y: step(y).sum()))(x)

    for ours, theirs in [map(gradient, (oriel.all_reduce, lax.psum))]:
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_nested_shard_map():
    mesh = make_mesh((4, 2), ("a", "b"), SHUFFLED)

    def nested(f):
        inner = jax.shard_map(
            lambda w: f(w, ("a", "b")), in_specs=P(None, "b"), out_specs=P(), axis_names={"b"}
        )
        outer = jax.shard_map(inner, in_specs=P("a"), out_specs=P(), axis_names={"a"})
        with jax.set_mesh(mesh):
            return jax.jit(outer)(table())

    assert_same(*map(nested, (oriel.all_reduce, lax.psum)))


def test_two_meshes_in_one_program():
    line, grid = make_mesh(), make_mesh((4, 2), ("a", "b"))

    def program(f, v):
        one = over(line, lambda w: f(w, "x"))(v)
        two = over(grid, lambda w: f(w, "b"), P("a", "b"), P("a"))(v)
        return one + two.sum()

    assert_same(
        *(jax.jit(functools.partial(program, f))(table()) for f in (oriel.all_reduce, lax.psum))
    )


def test_abstract_mesh_without_devices():
    mesh = make_mesh()
    step = over(mesh.abstract_mesh, lambda v: oriel.all_reduce(v, "x"))
    with pytest.raises(ValueError, match="jax.set_mesh"):
        step(jax.device_put(table(), NamedSharding(mesh, P("x"))))


def test_explicit_axes():
    mesh = make_mesh(kind=AxisType.Explicit)
    x = jax.device_put(table(), NamedSharding(mesh, P("x")))
    assert_same(*(over(mesh, lambda v: f(v, "x"))(x) for f in (oriel.all_reduce, lax.psum)))


def test_inner_jit_called_often():
    """JAX lowers the inner function once; XLA copies the call."""

    def program(f, v):
        inner = jax.jit(lambda w: f(w, "x"))
        return inner(v) + inner(v * 2) * inner(v * 3) - inner(inner(v) * v)

    assert_same(
        *(
            over(make_mesh(), functools.partial(program, f))(table())
            for f in (oriel.all_reduce, lax.psum)
        )
    )


def test_equal_calls_stay_apart():
    """Several calls with equal types have names of their own."""

    def program(v):
        return oriel.all_reduce(v, "x") + oriel.all_reduce(v + 1, "x")

    text = over(make_mesh(), program).lower(table()).as_text()
    assert len(set(re.findall(r"\bname = (\d+)", text))) == 2
