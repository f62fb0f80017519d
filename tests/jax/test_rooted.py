"""gather, scatter, reduce and scan over axes: against NumPy in float64 and against lax, and as
compositions of other operations, which is what GPUs run."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from oriel import _calls
from oriel._collectives import rooted as _rooted
from support import assert_bits, make_mesh, over

N = 8
REDUCTIONS = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
MESHES = {  # (shape, names, order of devices), axes
    "one axis": ((8,), "x", None, ("x",)),
    "devices in another order": ((8,), "x", [5, 3, 0, 7, 1, 6, 2, 4], ("x",)),
    "the minor axis": ((2, 4), "xy", None, ("y",)),
    "the major axis": ((2, 4), "xy", None, ("x",)),
    "two axes": ((2, 4), "xy", None, ("x", "y")),
    "two axes turned round": ((2, 4), "xy", None, ("y", "x")),
}


def by_numpy(operation, blocks, root=0, op="sum"):
    """`blocks`: of each group the operands of its members."""
    n = blocks.shape[1]
    if operation == "gather":
        result = np.zeros((blocks.shape[0], n, *blocks.shape[1:]), blocks.dtype)
        result[:, root] = blocks
    elif operation == "scatter":
        result = blocks[:, root]
    elif operation == "reduce":
        result = blocks.copy()
        result[:, root] = REDUCTIONS[op].reduce(blocks, axis=1, dtype=blocks.dtype)
    else:
        result = REDUCTIONS[op].accumulate(blocks, axis=1, dtype=blocks.dtype)
    return result


def check(mesh_of, function, shape, wanted, dtype=np.float32, check_vma=True, near=False):
    """`wanted` of the operands of each group."""
    mesh_shape, names, order, axes = mesh_of
    layout = mesh_shape, names, axes
    draw = np.random.default_rng(3)
    parts = cases.draw_values(draw, (*mesh_shape, *shape), np.dtype(dtype))
    spec, lead = P(*names), (1,) * len(names)

    def step(v):
        y = function(v.reshape(shape), axes)
        return y.reshape(*lead, *y.shape)

    got = over(make_mesh(mesh_shape, tuple(names), order), step, spec, spec, check_vma)(parts)
    expected = cases.from_groups(wanted(cases.in_groups(parts, *layout)), *layout)
    if near:
        np.testing.assert_allclose(np.float64(got), expected, rtol=1e-5, atol=1e-5)
    else:
        assert_bits(got, expected)


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("mesh_of", MESHES.values(), ids=MESHES)
def test_operations(mesh_of, check_vma):
    n = int(np.prod([mesh_of[0][mesh_of[1].index(a)] for a in mesh_of[3]]))
    root = n - 2 if n > 2 else 1
    for name, shape in (("gather", (3,)), ("scatter", (n, 3)), ("reduce", (3,)), ("scan", (3,))):
        rooted = {} if name == "scan" else {"root": root}
        # Integers: sums have one value in any order, of axes as of numbers.
        check(
            mesh_of,
            lambda v, axes, name=name, rooted=rooted: getattr(oriel, name)(v, axes, **rooted),
            shape,
            lambda blocks, name=name, rooted=rooted: by_numpy(name, blocks, **rooted),
            np.int32,
            check_vma,
        )


@pytest.mark.parametrize("dtype", cases.DTYPES, ids=lambda dtype: dtype.name)
def test_dtypes(dtype):
    """Moved bit by bit, and reduced, as lax does it."""

    def step(v):
        v = v[0]
        total = prefix(lax.all_gather(v, "x"), N - 1)
        pairs = [
            (oriel.gather(v, "x", 6), jnp.where(at(6), lax.all_gather(v, "x"), zero(8, 5))),
            (oriel.scatter(tall(v), "x", 3), lax.all_gather(tall(v), "x")[3, index()]),
            (oriel.reduce(v, "x", "max", 2), jnp.where(at(2), total, v)),
            (oriel.scan(v, "x", "max"), prefix(lax.all_gather(v, "x"), index())),
        ]
        return jax.tree.map(lambda y: y[None], pairs)

    def tall(v):
        return jnp.stack([v, v[::-1], v, v, v[::-1], v, v, v])

    def zero(*shape):
        return jnp.zeros(shape, dtype)

    def index():
        return lax.axis_index("x")

    def at(root):
        return index() == root

    def prefix(values, place):
        every = [values[0]]
        for k in range(1, N):
            every.append(lax.max(every[-1], values[k]))
        return jnp.stack(every)[place]

    parts = cases.draw_values(np.random.default_rng(4), (N, 5), dtype)
    for got, wanted in over(make_mesh(), step, P("x"), P("x"))(parts):
        assert_bits(got, wanted)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op):
    dtypes = (np.int32, np.uint8, bool) if op in ("and", "or", "xor") else (np.int16, np.float64)
    for dtype in dtypes:
        check(
            MESHES["one axis"],
            lambda v, axes: oriel.reduce(v, axes, op, 5),
            (7,),
            lambda blocks: by_numpy("reduce", blocks, 5, op),
            dtype,
            near=dtype is np.float64,
        )
        check(
            MESHES["one axis"],
            lambda v, axes: oriel.scan(v, axes, op),
            (7,),
            lambda blocks: by_numpy("scan", blocks, op=op),
            dtype,
            near=dtype is np.float64,
        )


def test_booleans_are_summed():
    check(
        MESHES["one axis"],
        oriel.scan,
        (4,),
        lambda blocks: np.cumsum(blocks.astype(np.int32), 1, dtype=np.int32),
        bool,
    )


def test_sums_of_floats():
    """The bits of all_reduce, on the root and at the end of a scan."""

    def step(v):
        v = v[0]
        whole = oriel.all_reduce(v, "x")
        return jnp.stack([whole, oriel.reduce(v, "x", root=7), oriel.scan(v, "x")])[None]

    for dtype in ("float32", "bfloat16"):
        parts = cases.draw_values(np.random.default_rng(5), (N, 1001), np.dtype(dtype))
        last = over(make_mesh(), step, P("x"), P("x"))(parts)[7]
        assert_bits(last[0], last[1])
        assert_bits(last[0], last[2])


def test_layouts_and_trees():
    """axis and tiled are those of all_gather; x is a tree."""

    def step(v):
        tree = {"a": v[0], "b": (v[0, 0],)}
        stacked = oriel.gather(tree, "x", 1, axis=1)
        joined = oriel.gather(v[0], "x", 1, axis=1, tiled=True)
        back = oriel.scatter(joined, "x", 1, axis=1, tiled=True)
        again = oriel.scatter(stacked, "x", 1, axis=1)
        same = jnp.array_equal(back, v[0]) & jnp.array_equal(again["b"][0], v[0, 0])
        return stacked["a"][None], joined[None], same[None]

    x = np.arange(N * 6.0).reshape(N, 2, 3)
    stacked, joined, same = over(make_mesh(), step, P("x"), P("x"))(x)
    np.testing.assert_array_equal(stacked[1], np.moveaxis(x, 0, 1))
    np.testing.assert_array_equal(joined[1], np.concatenate(x, 1))
    assert not stacked[0].any() and same.all()


def compose(name):
    def call(v, axes, *arguments):
        with _calls.making(_calls.Made("test")):  # as a part of an operation
            return getattr(_rooted, f"compose_{name}")(v, axes, *arguments)

    return call


ARGUMENTS = {
    "gather": ((3,), (2,)),
    "scatter": ((N, 3), (2,)),
    "reduce": ((3,), ("sum", 2)),
    "scan": ((3,), ("sum", False)),
}


def ours(name):
    bind = getattr(_rooted, f"_bind_{name}")
    return lambda v, axes, *arguments: bind(v, axes, *arguments)


def derivatives(function, shape, arguments):
    """Of a linear function over "x": (values, tangents, cotangents)."""

    def step(v, w):
        def f(v):
            return function(v, ("x",), *arguments)

        y, tangent = jax.jvp(f, (v[0],), (w[0],))
        weights = jnp.cos(jnp.arange(y.size, dtype=y.dtype) + lax.axis_index("x")).reshape(y.shape)
        cotangent = jax.grad(lambda v: (f(v) * weights).sum())(v[0])
        return jax.tree.map(lambda y: y[None], (y, tangent, cotangent, weights))

    rng = np.random.default_rng(6)
    v, w = (rng.normal(size=(N, *shape)) for _ in range(2))
    spec = P("x")
    return v, w, over(make_mesh(), step, (spec, spec), spec)(v, w)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_derivatives(name):
    """The function itself for tangents; for cotangents what makes the two products equal. The
    composition, whose derivatives are those of its parts, has the same."""
    shape, arguments = ARGUMENTS[name]
    v, w, got = derivatives(ours(name), shape, arguments)
    _, _, composed = derivatives(compose(name), shape, arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), got, composed)
    y, tangent, cotangent, weights = map(np.asarray, got)
    again = by_numpy(name, w[None], **({} if name == "scan" else {"root": 2}))[0]
    np.testing.assert_allclose(tangent, again, rtol=1e-12)
    np.testing.assert_allclose((weights * tangent).sum(), (cotangent * w).sum(), rtol=1e-10)
    # Each device's own part of it, too.
    for device in range(N):
        only = np.zeros_like(w)
        only[device] = w[device]
        moved = by_numpy(name, only[None], **({} if name == "scan" else {"root": 2}))[0]
        np.testing.assert_allclose((weights * moved).sum(), (cotangent * only).sum(), rtol=1e-10)


@pytest.mark.parametrize("op", ["prod", "max"])
def test_what_has_no_derivative(op):
    for function in (oriel.reduce, oriel.scan):
        step = over(make_mesh(), jax.grad(lambda v: function(v, "x", op).sum()), P("x"), P("x"))  # noqa: B023
        with pytest.raises(NotImplementedError, match=f"{function.__name__} of '{op}'"):
            step(jnp.ones(N))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_vmap(name):
    """Over another dimension, wherever it is; over the axis itself; over one of two axes."""
    shape, arguments = ARGUMENTS[name]
    function = getattr(oriel, name)
    arguments = arguments[:1] if name == "scan" else arguments
    x = np.random.default_rng(7).integers(-9, 9, (N, *shape))
    wanted = by_numpy(name, x[None], **({} if name == "scan" else {"root": 2}))[0]

    def other(v):
        many = jnp.stack([v[0], 2 * v[0]], 1)
        return jax.vmap(lambda u: function(u, "x", *arguments), 1, 1)(many)[None]

    got = over(make_mesh(), other, P("x"), P("x"))(x)
    assert_bits(got, np.stack([wanted, 2 * wanted], 2).astype(x.dtype))
    itself = jax.vmap(lambda u: function(u, "i", *arguments), axis_name="i")(x)
    assert_bits(itself, wanted)

    def both(v):
        return jax.vmap(lambda u: function(u, ("y", "i"), *arguments), axis_name="i")(v)

    step = over(make_mesh((4, 2), ("y", "z")), both, P("y"), P("y"))
    assert_bits(step(x), wanted)


def test_wrong_arguments():
    x = jnp.ones((N, 3))

    def call(function):
        over(make_mesh(), lambda v: function(v), P("x"), P("x"))(x)

    with pytest.raises(ValueError, match=r"oriel\.gather: root is 8, but there are 8 devices"):
        call(lambda v: oriel.gather(v, "x", root=8))
    with pytest.raises(TypeError, match=r"oriel\.scatter: root must be a whole number, got 'a'"):
        call(lambda v: oriel.scatter(v, "x", root="a"))
    with pytest.raises(ValueError, match="dimension 1 of x .axis. has size 3, but there are 8"):
        call(lambda v: oriel.scatter(v, "x", axis=1))
    with pytest.raises(ValueError, match="op must be one of sum, prod.*got 'mean'"):
        call(lambda v: oriel.reduce(v, "x", "mean"))
    with pytest.raises(TypeError, match="scan: 'and' combines the bits"):
        call(lambda v: oriel.scan(v, "x", "and"))
    with pytest.raises(NameError, match="unbound axis name: 'q'.*oriel.scan"):
        call(lambda v: oriel.scan(v, "q"))
    with pytest.raises(ValueError, match="oriel.gather: axis is 3, out of bounds"):
        call(lambda v: oriel.gather(v, "x", axis=3))
