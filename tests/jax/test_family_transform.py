"""The family of operations under JAX's transformations: the same as lax's own."""

import functools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from support import assert_same, examples, make_mesh, over, picker

CYCLE = [(i, (i + 3) % 8) for i in range(8)]
# name: operation, arguments; for an operand of shape (8, 2) or (8, 16)
CALLS = {
    "all_gather": ("all_gather", {}),
    "all_gather-last": ("all_gather", {"axis": -1}),
    "all_gather-tiled": ("all_gather", {"axis": 1, "tiled": True}),
    "reduce_scatter": ("reduce_scatter", {}),
    "reduce_scatter-tiled": ("reduce_scatter", {"scatter_dimension": 1, "tiled": True}),
    "all_to_all": ("all_to_all", {"split_axis": 0, "concat_axis": 1}),
    "all_to_all-same": ("all_to_all", {"split_axis": 0, "concat_axis": 0}),
    "all_to_all-tiled": ("all_to_all", {"split_axis": 1, "concat_axis": 0, "tiled": True}),
    "broadcast": ("broadcast", {"root": 2}),
    "permute": ("permute", {"perm": CYCLE}),
    "permute-partial": ("permute", {"perm": [(0, 1), (1, 5), (6, 6)]}),
}
both_vma = pytest.mark.parametrize("check_vma", [True, False])


def by_oriel(call, axes="x"):
    name, arguments = CALLS[call]
    return lambda v: getattr(oriel, name)(v, axes, **arguments)


def by_lax(call, axes="x"):
    name, arguments = CALLS[call]
    return lambda v: cases.SOUND_BY_LAX[name](v, axes, **arguments)


def table(*shape):
    return jnp.arange(np.prod(shape, dtype=float)).reshape(shape) % 23 - 5


def assert_close(ours, theirs):
    """Trees by name of the call."""
    for call in theirs:
        pairs = zip(jax.tree.leaves(ours[call]), jax.tree.leaves(theirs[call]), strict=True)
        for i, (a, b) in enumerate(pairs):
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=f"{call}, result {i}")


# Many calls in one program: what takes time here is compiling.


@pytest.mark.parametrize(
    "spec, check_vma",
    [(P("x"), True), (P("x"), False), (P(), True)],
    ids=["varying", "unchecked", "invariant"],
)
def test_derivatives(spec, check_vma):
    """Value, forward and reverse mode, inside and outside of shard_map, of an
    operand that differs between the devices and of one that does not."""
    x = table(64, 16) if spec == P("x") else table(8, 16)

    def inside(f, v):
        def loss(w):
            y = f(w * w)
            return (y * jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)).sum()

        return f(v), jax.grad(loss)(v), jax.jvp(f, (v,), (v + 1,))[1]

    def everything(by):
        each = over(
            make_mesh(), lambda v: {c: inside(by(c), v) for c in CALLS}, spec, P("x"), check_vma
        )
        plain = over(
            make_mesh(), lambda v: {c: by(c)(v * v) for c in CALLS}, spec, P("x"), check_vma
        )
        gradient = jax.grad(lambda v: sum((y**2).sum() for y in plain(v).values()))(x)
        return each(x) | {"outside": gradient, "linear": jax.linearize(plain, x)[1](x - 1)}

    assert_close(everything(by_oriel), everything(by_lax))


@examples(6, soak=150)
@given(st.data())
@pytest.mark.parametrize("operation", ["all_reduce", *cases.OPERATIONS])
def test_any_derivatives(operation, data):
    """On any mesh, over any axes, of devices in any order. Of small whole numbers, whose
    sums have one result in any order."""
    pick = picker(data)
    floats = [np.dtype("float32"), np.dtype("float64")]
    case = cases.draw_case(pick, operation, floats, ops=("sum", "mean"), lengths=(1, 2, 3))
    rng, check_vma = np.random.default_rng(pick(list(range(100)))), pick([True, False])
    mesh = make_mesh(case.mesh_shape, tuple(case.names), case.order)

    def draw(shape):
        return rng.integers(-4, 5, shape).astype(case.dtype)

    x, t = draw((*case.mesh_shape, *case.shape)), draw((*case.mesh_shape, *case.shape))
    result = jax.eval_shape(over(mesh, case.ours, case.spec, case.spec, check_vma), x)
    w = draw(result.shape)

    @jax.jit
    def both(x, t, w):
        kinds = case.ours, case.theirs_derived
        return [any_derivatives(case, mesh, f, check_vma, x, t, w) for f in kinds]

    assert_same(*both(x, t, w))


def any_derivatives(case, mesh, f, check_vma, x, t, w):
    """Forward and reverse mode, inside and outside of shard_map."""

    def inside(v, tangent, weights):
        gradient = jax.grad(lambda u: (f(u * u) * weights).sum())(v)
        return jax.jvp(lambda u: f(u * u), (v,), (tangent,))[1], gradient

    def squared(v):
        return f(v * v)

    spec = case.spec
    step = over(mesh, squared, spec, spec, check_vma)
    value, pull = jax.vjp(step, x)
    return (
        over(mesh, inside, (spec,) * 3, spec, check_vma)(x, t, w),
        jax.jvp(step, (x,), (t,))[1],
        value,
        pull(w),
    )


def test_types():
    """Results vary as lax's do."""

    def function(v):
        for call in CALLS:
            assert jax.typeof(by_oriel(call, "a")(v)) == jax.typeof(by_lax(call, "a")(v)), call
        return v

    over(make_mesh((8, 1), ("a", "b")), function, P("a", "b"), P("a", "b"))(table(64, 16))


def test_vmap():
    x = table(64, 16, 3)

    def everything(by):
        def inside(v):
            return {
                call: (
                    jax.vmap(by(call), 2, -1)(v),
                    jax.vmap(by(call), 2, 1)(v),
                    jax.vmap(by(call), 0, 1)(jnp.moveaxis(v, 2, 0)),
                )
                for call in CALLS
            }

        return over(make_mesh(), inside, P("x"), P("x"))(x)

    assert_close(everything(by_oriel), everything(by_lax))


def test_vmap_of_shard_map():
    x = table(64, 16, 3)

    def everything(by):
        step = over(make_mesh(), lambda v: {c: by(c)(v) for c in CALLS}, P("x"), P("x"))
        return jax.vmap(step, 2, 1)(x)

    assert_close(everything(by_oriel), everything(by_lax))


@pytest.mark.parametrize("dim", [0, 1])
def test_vmap_of_the_axis(dim):
    x = table(8, 8, 16)
    for call in CALLS:
        if call != "permute-partial":  # lax takes whole permutations there alone
            ours, theirs = (jax.vmap(by(call), dim, axis_name="x")(x) for by in (by_oriel, by_lax))
            assert_same(ours, theirs)


def test_vmap_of_the_axis_with_one_value_for_all():
    x = np.asarray(table(8, 16))
    defaults = {
        "all_gather": {"axis": 0, "tiled": False},
        "reduce_scatter": {"scatter_dimension": 0, "tiled": False, "op": "sum"},
        "all_to_all": {"tiled": False},
    }
    for call, (name, arguments) in CALLS.items():
        arguments = defaults.get(name, {}) | arguments
        case = cases.Case(name, (8, 16), x.dtype, (8,), "x", ("x",), (), arguments)
        expected = case.expected(np.stack([x] * 8))
        got = jax.vmap(lambda i: by_oriel(call)(x) + 0 * i, axis_name="x")(jnp.zeros(8))
        np.testing.assert_array_equal(got, expected, err_msg=call)


def test_vmap_of_the_axis_with_a_part_of_a_permutation():
    x = table(8, 3)
    got = jax.vmap(lambda v: oriel.permute(v, "x", [(0, 1), (7, 3)]), axis_name="x")(x)
    expected = np.zeros((8, 3))
    expected[1], expected[3] = x[0], x[7]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "axes, check_vma", [("va", True), ("av", False), ("avb", True)], ids=lambda v: str(v)
)
def test_vmap_axis_among_mesh_axes(axes, check_vma):
    """As if the axis of vmap were one of the mesh."""
    sizes = {"v": 2, "a": 2 if "b" in axes else 4, "b": 2}
    shape = tuple(sizes[name] for name in axes)
    calls = [call for call in CALLS if not call.startswith("permute")]
    x = table(*shape, 8, 16)

    def function(v):
        return {call: by_oriel(call, tuple(axes))(v.reshape(8, 16)) for call in calls}

    def add_dims(tree, dims):
        return jax.tree.map(lambda y: jnp.expand_dims(y, dims), tree)

    lead = tuple(range(len(axes)))
    whole = make_mesh(shape, tuple(axes))
    expected = over(whole, lambda v: add_dims(function(v), lead), P(*axes), P(*axes))(x)

    place, kept = axes.index("v"), axes.replace("v", "")
    devices = np.array(jax.devices()[:4]).reshape([sizes[name] for name in kept])
    mesh = jax.sharding.Mesh(devices, tuple(kept), axis_types=(AxisType.Auto,) * len(kept))
    specs = P(*(None if name == "v" else name for name in axes))

    def mapped(v):
        return add_dims(jax.vmap(function, place, axis_name="v")(v), lead[1:])

    got = over(mesh, mapped, specs, P(None, *kept), check_vma)(x)
    for call in calls:
        np.testing.assert_array_equal(
            jnp.moveaxis(got[call], 0, place), expected[call], err_msg=call
        )


def test_permute_over_a_mixture_is_refused():
    def function(v):
        return jax.vmap(lambda w: oriel.permute(w, ("v", "x"), [(0, 1)]), axis_name="v")(v)

    with pytest.raises(NotImplementedError, match="of which vmap maps 'v'"):
        over(make_mesh(), function, P("x"), P("x"))(table(16, 2))


@pytest.mark.parametrize("axes", [("y", "x"), ("v", "x"), ("y", "v")])
def test_gradient_of_broadcast(axes):
    """Over axes in another order than the mesh's, and of vmap among them, which lax.psum
    takes with check_vma off alone."""
    mesh = make_mesh((4, 2), ("x", "y"), [3, 1, 4, 0, 5, 2, 7, 6])

    def gradient(f, v):
        inner = jax.grad(lambda w: (f(w * w, axes, root=3) * w).sum())
        return jax.vmap(inner, axis_name="v")(v)

    def everything(f):
        spec = P(None, "x", "y")
        return over(mesh, functools.partial(gradient, f), spec, spec, False)(table(3, 4, 2))

    assert_same(*map(everything, (oriel.broadcast, cases.BY_LAX["broadcast"])))


@pytest.mark.parametrize("op", ["prod", "min", "max"])
def test_no_derivative(op):
    mapped = over(make_mesh(), lambda v: oriel.reduce_scatter(v, "x", op=op), P("x"), P("x"))
    with pytest.raises(NotImplementedError, match="Differentiation rule for reduce_scatter"):
        jax.grad(lambda y: mapped(y).sum())(table(64, 2))


@pytest.mark.parametrize("op, expected", [("sum", 16.0), ("prod", 3.0**8), ("max", 2.0)])
def test_vmapped_scatter_of_one_value(op, expected):
    def function(v):
        w = jnp.full(8, 3.0 if op == "prod" else 2.0)
        return jax.vmap(lambda i: i * 0 + oriel.reduce_scatter(w, "v", op=op), axis_name="v")(v)

    assert (np.asarray(function(jnp.zeros(8))) == expected).all()


@both_vma
def test_barrier(check_vma):
    x = table(8, 4)

    def function(v):
        inner = jax.grad(lambda w: (oriel.barrier(jnp.sin(w), "x") ** 2).sum())
        return inner(v), jax.vmap(lambda w: oriel.barrier(w, "x"), 1, 1)(v)

    gradient, same = over(make_mesh(), function, P("x"), P("x"), check_vma)(x)
    np.testing.assert_allclose(gradient, jax.grad(lambda w: (jnp.sin(w) ** 2).sum())(x))
    np.testing.assert_array_equal(same, x)
    again = jax.vmap(lambda w: oriel.barrier(w, "v"), axis_name="v")(x)
    np.testing.assert_array_equal(again, x)


def test_barrier_keeps_the_type():
    mesh = make_mesh((4, 2), ("a", "b"))

    def function(v):
        assert jax.typeof(oriel.barrier(v, ("a", "b"))) == jax.typeof(v)
        return oriel.barrier(v, "b")

    over(mesh, function, P("a"), P("a"))(table(8, 2))


@both_vma
def test_control_flow(check_vma):
    def function(o, v):
        def body(carry, scale):
            carry = o["permute"](carry * scale, "x", CYCLE)
            return carry, o["all_gather"](carry, "x").sum(0)

        last, rows = lax.scan(jax.checkpoint(body), v, jnp.arange(1.0, 4.0))
        chosen = lax.cond(
            rows.sum() > 0,
            lambda w: o["reduce_scatter"](w, "x"),
            lambda w: o["reduce_scatter"](-w, "x"),
            jnp.broadcast_to(last, (8, *last.shape)),
        )
        return chosen + rows.sum(0)

    def gradient(o):
        mapped = over(make_mesh(), functools.partial(function, o), P("x"), P("x"), check_vma)
        return mapped(table(8, 2)), jax.grad(lambda y: mapped(y).sum())(table(8, 2))

    ours = {name: getattr(oriel, name) for name in cases.OPERATIONS}
    assert_same(*map(gradient, (ours, cases.BY_LAX)))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_partly_manual(kind):
    mesh = make_mesh((4, 2), ("a", "b"), [3, 1, 4, 0, 5, 2, 7, 6], kind)
    x = jax.device_put(table(16, 4), NamedSharding(mesh, P("a", "b")))

    def function(v):
        return (
            oriel.all_gather(v, "a", tiled=True),
            oriel.reduce_scatter(v, "a"),
            oriel.permute(v, "a", [(0, 1), (1, 3), (2, 0)]),
            oriel.all_to_all(v, "a", 0, 0),
            oriel.broadcast(v, "a", root=2),
        )

    step = jax.shard_map(function, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})
    with jax.set_mesh(mesh):
        results = [np.asarray(y) for y in jax.jit(step)(x)]
    parts = np.asarray(x).reshape(4, 4, 4)
    expected = [
        np.tile(parts.reshape(16, 4), (4, 1)),
        parts.sum(0).reshape(16),
        [parts[2], parts[0], 0 * parts[0], parts[1]],
        parts.swapaxes(0, 1),
        [parts[2]] * 4,
    ]
    for got, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got, np.asarray(wanted).reshape(got.shape))


def test_mesh_from_context():
    step = jax.jit(
        jax.shard_map(
            lambda v: (oriel.all_gather(v, "a", tiled=True), oriel.permute(v, "a", [(0, 3)])),
            in_specs=P("a", "b"),
            out_specs=P("a", "b"),
        )
    )
    x = np.asarray(table(4, 2))
    for order in [None, [3, 1, 4, 0, 5, 2, 7, 6], None]:
        mesh = make_mesh((4, 2), ("a", "b"), order)
        with jax.set_mesh(mesh):
            whole, moved = step(jax.device_put(x, NamedSharding(mesh, P("a", "b"))))
            np.testing.assert_array_equal(whole, np.tile(x, (4, 1)))
            np.testing.assert_array_equal(moved, [*np.zeros((3, 2)), x[0]])
