"""The types that jax.shard_map gives values over its axes: sums of what is unreduced, and gathers
into "reduced" and "invarying", with the types, values and derivatives of lax."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from support import assert_same, make_mesh, over

OURS = {
    "psum": lambda v: oriel.all_reduce(v, "x"),
    "pmean": lambda v: oriel.all_reduce(v, "x", "mean"),
    "psum_scatter": lambda v, **more: oriel.reduce_scatter(v, "x", **more),
    "all_gather": lambda v, **more: oriel.all_gather(v, "x", **more),
}
THEIRS = {name: functools.partial(getattr(lax, name), axis_name="x") for name in OURS}


def unreduced(v):
    return lax.pcast(v, "x", to="unreduced")


# Of a value (8, 16) that varies over "x" and "y".
CALLS = {
    "psum": lambda o, v: o["psum"](unreduced(v)),
    "pmean": lambda o, v: o["pmean"](unreduced(v)),
    "scatter": lambda o, v: o["psum_scatter"](unreduced(v)),
    "tiled scatter": lambda o, v: o["psum_scatter"](unreduced(v), tiled=True),
    "other scatter": lambda o, v: o["psum_scatter"](unreduced(v), scatter_dimension=1, tiled=True),
    "reduced": lambda o, v: o["all_gather"](v, to="reduced"),
    "reduced axis": lambda o, v: o["all_gather"](v, axis=1, to="reduced"),
    "tiled reduced": lambda o, v: o["all_gather"](v, axis=1, tiled=True, to="reduced"),
    "invarying": lambda o, v: o["all_gather"](v, to="invarying"),
    "invarying axis": lambda o, v: o["all_gather"](v, axis=2, to="invarying"),
    "tiled invarying": lambda o, v: o["all_gather"](v, axis=1, tiled=True, to="invarying"),
    "varying": lambda o, v: o["all_gather"](v, to="varying"),
}


def observed(o, call, types, v):
    """The result and the derivative of one call; their types go into `types`."""
    y, back = jax.vjp(functools.partial(call, o), v)
    mat = jax.typeof(y).mat
    cotangent = jnp.arange(y.size, dtype=y.dtype).reshape(y.shape) % 7
    cotangent = lax.pcast(cotangent, tuple(mat.varying | mat.reduced), to="varying")
    if mat.reduced:
        cotangent = lax.pcast(cotangent, tuple(mat.reduced), to="unreduced")
    (x,) = back(cotangent)
    types += [jax.typeof(y).str_short(True), jax.typeof(x).str_short(True)]
    return varying(y), varying(x)


def varying(x):
    mat = jax.typeof(x).mat
    if mat.reduced:
        x = lax.pcast(x, tuple(mat.reduced), to="varying")
    return lax.pcast(x, tuple({"x", "y"} - jax.typeof(x).mat.varying), to="varying")[None, None]


@pytest.mark.parametrize("name", CALLS)
def test_as_lax(name):
    mesh = make_mesh((4, 2), ("x", "y"), [5, 3, 0, 7, 1, 6, 2, 4])
    rng = np.random.default_rng(3)
    x = rng.integers(-9, 9, (4, 2, 4, 8)).astype(np.float32)
    types = [], []

    def function(o, types, v):
        return observed(o, CALLS[name], types, v[0, 0])

    both = [
        over(mesh, functools.partial(function, o, into), P("x", "y"), P("x", "y"))(x)
        for o, into in zip((OURS, THEIRS), types)
    ]
    assert types[0] == types[1]
    assert_same(*both)


def test_tree_and_vmap():
    """Of a pytree, under vmap, as the sum or gather of each entry."""

    def function(v):
        tree = {"a": v, "b": [2 * v]}
        sums = oriel.all_reduce(unreduced(tree), "x")
        mapped = jax.vmap(lambda w: oriel.all_gather(w, "x", to="invarying"), 1, 0)(v)
        reduced = jax.vmap(lambda w: oriel.all_gather(w, "x", to="reduced"), 1, 0)(v)
        parts = jax.vmap(lambda w: oriel.reduce_scatter(w, "x", tiled=True), 1, 1)(unreduced(v))
        return sums["a"], sums["b"][0], mapped, lax.pcast(reduced, "x", to="varying")[None], parts

    x = np.arange(8.0 * 8 * 3).reshape(64, 3)
    specs = (P(), P(), P(), P("x"), P("x"))
    total, twice, mapped, reduced, parts = over(make_mesh(), function, P("x"), specs)(x)
    by_device = x.reshape(8, 8, 3)
    np.testing.assert_array_equal(total, by_device.sum(0))
    np.testing.assert_array_equal(twice, 2 * by_device.sum(0))
    np.testing.assert_array_equal(mapped, np.moveaxis(by_device, 2, 0))
    np.testing.assert_array_equal(reduced, np.stack([mapped] * 8))
    np.testing.assert_array_equal(parts, by_device.sum(0))


def test_axes_of_vmap():
    def function(v):
        gather = functools.partial(oriel.all_gather, axis_name=("x", "i"), tiled=True)
        y = jax.vmap(functools.partial(gather, to="invarying"), axis_name="i", out_axes=None)(v)
        with pytest.raises(NotImplementedError, match="'i', an axis of vmap: such a type"):
            jax.vmap(functools.partial(gather, to="reduced"), axis_name="i")(v)
        return y

    x = np.arange(48.0).reshape(16, 3)
    got = over(make_mesh(), function, P("x"), P())(x)  # out_specs hold it to be invarying
    np.testing.assert_array_equal(got, x.ravel())


WRONG = {
    "mixed": lambda o, v: o.all_reduce(unreduced(v), ("x", "y")),
    "maximum": lambda o, v: o.all_reduce(unreduced(v), "x", "max"),
    "to": lambda o, v: o.all_gather(v, "x", to="elsewhere"),
    "gathers terms": lambda o, v: o.all_gather(unreduced(v), "x", to="reduced"),
    "exchanges terms": lambda o, v: o.permute(unreduced(v), "x", [(0, 1)]),
}


class Lax:
    all_gather = staticmethod(lax.all_gather)
    permute = staticmethod(lax.ppermute)

    @staticmethod
    def all_reduce(x, axes, op="sum"):
        return {"sum": lax.psum, "max": lax.pmax}[op](x, axes)


@pytest.mark.parametrize("name", WRONG)
def test_refused_as_by_lax(name):
    mesh = make_mesh((4, 2), ("x", "y"))
    raised = []
    for library in (Lax, oriel):
        step = over(mesh, functools.partial(WRONG[name], library), P("x", "y"), P("x", "y"))
        with pytest.raises(Exception) as error:  # noqa: B017, PT011
            step.trace(jnp.ones((8, 2)))
        raised.append(error.type)
    assert issubclass(raised[1], raised[0])


@pytest.mark.parametrize("to", ["reduced", "invarying"])
def test_without_types(to):
    """check_vma is off: a plain gather, as newer lax has it. That of 0.10 refuses "reduced", and a
    gradient of "invarying" lacks the other devices' terms."""

    def derived(gather, x):
        step = over(make_mesh(), lambda v: gather(v, "x"), P("x"), P("x"), False)
        y, back = jax.vjp(step, x)
        return y, *back(jnp.arange(64.0))

    x = np.arange(8.0)
    ours = derived(functools.partial(oriel.all_gather, to=to, tiled=True), x)
    assert_same(ours, derived(functools.partial(lax.all_gather, tiled=True), x))


def test_whole_world_has_no_types():
    with pytest.raises(ValueError, match="to='reduced' is a type over axes|one device per process"):
        oriel.all_gather(jnp.ones(3), to="reduced")
