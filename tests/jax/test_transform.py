"""all_reduce under JAX's transformations: the same as lax's own operation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from support import assert_bits, assert_same, make_mesh, over

LAX = {"sum": lax.psum, "mean": lax.pmean, "max": lax.pmax, "min": lax.pmin}
SMOOTH = ("sum", "mean")

both_vma = pytest.mark.parametrize("check_vma", [True, False])
smooth_ops = pytest.mark.parametrize("op", SMOOTH)
# An operand that differs between the devices, and one that does not.
operands = pytest.mark.parametrize("spec", [P("x"), P()], ids=["varying", "invariant"])


def ours(op):
    return functools.partial(oriel.all_reduce, op=op)


def pair(op):
    return ours(op), LAX[op]


def small():
    return jnp.arange(16.0).reshape(8, 2) - 5


@both_vma
@operands
@pytest.mark.parametrize("op", LAX)
def test_value(op, spec, check_vma):
    assert_same(
        *(over(make_mesh(), lambda v: f(v, "x"), spec, P(), check_vma)(small()) for f in pair(op))
    )


@both_vma
@pytest.mark.parametrize("op", LAX)
def test_constants(op, check_vma):
    def function(f, v):
        return f(1, "x") * v, f(2.5, "x") * v, f(np.arange(3), "x") + v[0, 0]

    assert_same(
        *(
            over(make_mesh(), functools.partial(function, f), P("x"), P("x"), check_vma)(small())
            for f in pair(op)
        )
    )


def test_axis_size_is_a_python_int():
    sizes = []

    def function(v):
        sizes.append((oriel.all_reduce(1, "a"), oriel.all_reduce(1, ("a", "b"))))
        return v

    mesh = make_mesh((4, 2), ("a", "b"))
    over(mesh, function, P("a", "b"), P("a", "b"))(jnp.zeros((4, 2)))
    assert sizes[0] == (4, 8)
    assert type(sizes[0][0]) is int


@both_vma
def test_pytree(check_vma):
    def function(f, v):
        return f({"a": v, "b": (v.astype(jnp.int8), None, [v > 0])}, "x")

    assert_same(
        *(
            over(make_mesh(), functools.partial(function, f), P("x"), P(), check_vma)(small())
            for f in pair("sum")
        )
    )


@both_vma
@operands
@smooth_ops
def test_grad_outside(op, spec, check_vma):
    def gradient(f):
        mapped = over(make_mesh(), lambda v: f(v * v, "x") * v, spec, P("x"), check_vma)
        return jax.grad(lambda y: (mapped(y) ** 2).sum())(small())

    assert_same(*map(gradient, pair(op)))


@both_vma
@operands
@smooth_ops
def test_grad_inside(op, spec, check_vma):
    def gradient(f):
        inner = jax.grad(lambda w: f(jnp.sin(w), "x").sum())
        return over(make_mesh(), inner, spec, P("x"), check_vma)(small())

    assert_same(*map(gradient, pair(op)))


@both_vma
@operands
@smooth_ops
def test_forward_mode(op, spec, check_vma):
    x = small()

    def derivatives(f):
        mapped = over(make_mesh(), lambda v: f(v * v, "x"), spec, P(), check_vma)
        return jax.jvp(mapped, (x,), (x + 1,)), jax.linearize(mapped, x)[1](x + 2)

    assert_same(*map(derivatives, pair(op)))


@both_vma
@smooth_ops
def test_hessian(op, check_vma):
    def hessian(f):
        mapped = over(make_mesh(), lambda v: f(v * v * v, "x"), P("x"), P(), check_vma)
        return jax.hessian(lambda y: mapped(y).sum())(small()[:, :1])

    assert_same(*map(hessian, pair(op)))


@pytest.mark.parametrize("op", ["max", "min", "prod"])
def test_no_derivative(op):
    mapped = over(make_mesh(), lambda v: oriel.all_reduce(v, "x", op))
    with pytest.raises(NotImplementedError, match="Differentiation rule"):
        jax.grad(lambda y: mapped(y).sum())(small())


def test_max_of_a_stopped_gradient():
    def loss(f, v):
        return v - f(lax.stop_gradient(v), "x")

    def gradient(f):
        mapped = over(make_mesh(), functools.partial(loss, f), P("x"), P("x"))
        return jax.grad(lambda y: (mapped(y) ** 2).sum())(small())

    assert_same(*map(gradient, pair("max")))


@both_vma
@pytest.mark.parametrize("op", LAX)
def test_vmap(op, check_vma):
    x = jnp.arange(48.0).reshape(8, 2, 3)

    def mapped(f):
        outside = jax.vmap(over(make_mesh(), lambda v: f(v, "x"), P("x"), P(), check_vma), 2, 1)
        inside = over(make_mesh(), jax.vmap(lambda v: f(v, "x"), 1), P("x"), P(), check_vma)
        return outside(x), inside(x)

    assert_same(*map(mapped, pair(op)))


@pytest.mark.parametrize("op", LAX)
def test_vmap_axis_alone(op):
    assert_same(*(jax.vmap(lambda v: f(v, "v"), axis_name="v")(small()) for f in pair(op)))


@both_vma
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("op", [*LAX, "prod"])
def test_vmap_axis_and_mesh_axis(op, jit, check_vma):
    def function(v):
        inner = functools.partial(oriel.all_reduce, axis_name=("x", "v"), op=op)
        inner = jax.jit(inner) if jit else inner
        return jax.vmap(inner, axis_name="v", out_axes=None)(v)

    x = np.arange(48.0).reshape(16, 3) % 5 + 1
    result = over(make_mesh(), function, P("x"), P(), check_vma)(x)
    np.testing.assert_array_equal(result, getattr(np, op)(x, axis=0))


@both_vma
@pytest.mark.parametrize(
    "op, expected", [("sum", 24.0), ("prod", 3.0**8), ("max", 3.0), ("mean", 3.0)]
)
def test_vmap_axis_of_an_unmapped_value(op, expected, check_vma):
    def function(v):
        return jax.vmap(lambda i: i * 0 + oriel.all_reduce(v * 3, "v", op), axis_name="v")(v[0])

    result = over(make_mesh(), function, P("x"), P("x"), check_vma)(jnp.ones((8, 8)))
    assert (np.asarray(result) == expected).all()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16"])
@pytest.mark.parametrize("op", ["sum", "prod"])
def test_vmap_axis_is_rounded_once(op, dtype):
    """As over devices; the numbers are such that f32 has no need to."""
    rng, n = np.random.default_rng(5), 17
    x = rng.integers(-32, 33, (n, 50)) / 8 if op == "sum" else rng.choice([0.5, 1, 2], (n, 50))
    x[:8] *= 1.5 if op == "prod" else 1
    x = jnp.asarray(x).astype(dtype)
    combine = {"sum": np.sum, "prod": np.prod}[op]

    wanted = jnp.asarray(combine(np.asarray(x).astype(np.float32), 0)).astype(dtype)
    got = jax.vmap(lambda v: oriel.all_reduce(v, "v", op), axis_name="v")(x)
    assert_bits(got[3], wanted)


@pytest.mark.parametrize("dtype, size, sum_of_7", [("float8_e4m3fn", 17, 120), ("int8", 300, 52)])
def test_vmap_axis_of_more_entries_than_the_dtype_has(dtype, size, sum_of_7):
    """17 is no f8, and 300 no s8."""
    mapped = jax.vmap(lambda v: oriel.all_reduce(v, "v"), None, axis_name="v", axis_size=size)
    assert_same(jax.jit(mapped)(jnp.asarray(7, dtype))[0], jnp.asarray(sum_of_7, dtype))


def test_vmap_axis_of_a_gradient():
    def gradient(f):
        inner = jax.grad(lambda a: f(a * a, ("v", "x")).sum())
        return over(make_mesh(), jax.vmap(inner, axis_name="v"), P("x"), P("x"), False)(small())

    assert_same(*map(gradient, pair("sum")))


@both_vma
def test_array_dimension_as_axis(check_vma):
    result = over(make_mesh(), lambda v: oriel.all_reduce(v, ("x", 0)), check_vma=check_vma)(
        small()
    )
    assert_same(result, small().sum(0))


@both_vma
def test_control_flow(check_vma):
    def function(f, v):
        start = f(v, "x")

        def scanned(carry, scale):
            carry = f(v * scale, "x") + carry
            return carry, carry.sum()

        last, sums = lax.scan(scanned, start, jnp.arange(3.0))
        looped = lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, f(v, "x") + c[1]), (0, start)
        )
        chosen = lax.cond(last[0, 0] > 0, lambda w: f(w, "x"), lambda w: f(-w, "x"), v)
        return last, sums, looped, chosen

    assert_same(
        *(
            over(make_mesh(), functools.partial(function, f), P("x"), P(), check_vma)(small())
            for f in pair("sum")
        )
    )


@both_vma
def test_grad_of_scan_and_checkpoint(check_vma):
    def function(f, v):
        @jax.checkpoint
        def body(carry, _):
            return jnp.sin(f(jnp.sin(carry), "x")) * v, None

        return lax.scan(body, v, None, length=3)[0]

    def gradient(f):
        mapped = over(make_mesh(), functools.partial(function, f), P("x"), P("x"), check_vma)
        return jax.grad(lambda y: mapped(y).sum())(small())

    assert_same(*map(gradient, pair("sum")))


def test_donation():
    mesh = make_mesh()
    x = jax.device_put(small(), jax.NamedSharding(mesh, P("x")))
    expected = small().sum(0, keepdims=True) + small()
    mapped = jax.shard_map(
        lambda v: oriel.all_reduce(v, "x") + v, mesh=mesh, in_specs=P("x"), out_specs=P("x")
    )
    result = jax.jit(mapped, donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(result, expected)


@both_vma
def test_eager_shard_map(check_vma):
    def mapped(f):
        return jax.shard_map(
            lambda v: f(v, "x") * f(1, "x"),
            mesh=make_mesh(),
            in_specs=P("x"),
            out_specs=P(),
            check_vma=check_vma,
        )(small())

    assert_same(*map(mapped, pair("sum")))


def test_pmap():
    assert_same(*(jax.pmap(lambda v: f(v, "d"), axis_name="d")(small()) for f in pair("mean")))


def test_result_does_not_vary():
    types = []

    def function(v):
        y = oriel.all_reduce(v, "a")
        types.append(jax.typeof(y))
        assert types[-1] == jax.typeof(lax.psum(v, "a"))
        return y

    mesh = make_mesh((4, 2), ("a", "b"))
    over(mesh, function, P("a", "b"), P(None, "b"))(jnp.zeros((4, 2)))
    assert "b" in str(types[0]) and "a" not in str(types[0]).split("V:")[-1]


def test_wrong_out_specs_are_seen():
    """check_vma knows that a sum over one axis still varies over the other."""
    mesh = make_mesh((4, 2), ("a", "b"))
    mapped = over(mesh, lambda v: oriel.all_reduce(v, "a"), P("a", "b"), P())
    with pytest.raises(ValueError, match="out_specs"):
        mapped(jnp.zeros((4, 2)))


def test_shapes_without_a_run():
    mapped = over(make_mesh(), lambda v: oriel.all_reduce(v, "x", "mean"))
    result = jax.eval_shape(mapped, jax.ShapeDtypeStruct((8, 5), jnp.int32))
    assert (result.shape, result.dtype) == ((1, 5), jnp.float32)
