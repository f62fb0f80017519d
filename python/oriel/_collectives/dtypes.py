"""Which dtypes the operations take, and how those travel that the C library does not know: what is
only moved is moved as other numbers with the same bits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import mlir

_REDUCED = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "float8_e4m3fn float8_e5m2 complex64 complex128".split()
)
_MOVED = frozenset(
    "int2 int4 uint2 uint4 float4_e2m1fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz "
    "float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split()
)
MOVERS = (
    "all_gather",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "permute",
    "ragged_all_to_all",
    "scatter",
)


def check(operation, dtype):
    if str(dtype) in _REDUCED or operation in MOVERS and (str(dtype) in _MOVED or is_key(dtype)):
        return
    if operation in MOVERS:
        raise TypeError(
            f"oriel.{operation} does not take dtype {dtype}; it takes PRNG keys and "
            f"{', '.join(sorted(_REDUCED | _MOVED))}"
        )
    movers = f"; {', '.join(MOVERS)} take it" if str(dtype) in _MOVED or is_key(dtype) else ""
    raise TypeError(
        f"oriel.{operation} does not take dtype {dtype}{movers}; it takes "
        f"{', '.join(sorted(_REDUCED))}"
    )


# ---- keys: what is bound are their numbers, which lie along a last dimension ---------------


def is_key(dtype):
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


def over_keys(bind):
    """`bind` of one array and whatever else, which takes and gives arrays of keys too."""

    @functools.wraps(bind)
    def run(x, *rest, **keywords):
        if not is_key(jax.typeof(x).dtype):
            return bind(x, *rest, **keywords)
        return like(x, bind(jax.random.key_data(x), *rest, **keywords))

    return run


def over_key_lists(bind):
    """The same of a list of arrays."""

    @functools.wraps(bind)
    def run(arrays, *rest, **keywords):
        results = bind([data_of(x) for x in arrays], *rest, **keywords)
        return [like(x, y) for x, y in zip(arrays, results, strict=True)]

    return run


def data_of(x):
    return jax.random.key_data(x) if is_key(jax.typeof(x).dtype) else x


def like(x, data):
    """The data as keys, if `x` are some."""
    if not is_key(jax.typeof(x).dtype):
        return data
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))


# ---- derivatives: what has been moved is summed on its way back ----------------------------


def widened(bind, x, *rest):
    """`bind`, a sum, of a dtype that no sum takes, one array or a list: in f32, rounded once, as f8
    are summed."""
    dtype = jax.typeof(jax.tree.leaves(x)[0]).dtype
    if str(dtype) not in _MOVED:
        return bind(x, *rest)
    wide = jax.tree.map(lambda v: v.astype(jnp.float32), x)
    return jax.tree.map(lambda v: v.astype(dtype), bind(wide, *rest))


# ---- lowering ------------------------------------------------------------------------------


def as_moved(ctx, operands):
    """What a custom call takes for these: (ctx, operands, what its attributes say of it)."""
    names = [str(aval.dtype) for aval in ctx.avals_in]
    said = [1 + sorted(_MOVED).index(name) if name in _MOVED else 0 for name in names]
    moved = [_lowered(ctx, _to_bytes, x, aval) for x, aval in zip(operands, ctx.avals_in)]
    avals_in, avals_out = ([_moved_type(a) for a in some] for some in (ctx.avals_in, ctx.avals_out))
    numbers = {"dtypes": said} if any(said) else {}  # ranks whose dtypes differ must not meet
    return ctx.replace(avals_in=avals_in, avals_out=avals_out), moved, numbers


def as_given(ctx, results):
    """What a custom call has made of what `as_moved` gave it; `ctx` is the one before."""
    return [
        _lowered(ctx, _from_bytes, x, _moved_type(aval), dtype=aval.dtype)
        if _moved_type(aval) is not aval
        else x
        for x, aval in zip(results, ctx.avals_out)
    ]


def _moved_type(aval):
    if str(aval.dtype) not in _MOVED:
        return aval
    signed = jnp.issubdtype(aval.dtype, jnp.signedinteger)
    return aval.update(dtype=np.dtype("int8" if signed else "uint8"))


def _lowered(ctx, function, x, aval, **keywords):
    if function is _to_bytes and str(aval.dtype) not in _MOVED:
        return x
    rule = mlir.lower_fun(functools.partial(function, **keywords), multiple_results=False)
    return rule(ctx.replace(avals_in=[aval], avals_out=None), x)[0]


def _to_bytes(x):
    if jnp.issubdtype(x.dtype, jnp.floating):
        x = lax.bitcast_convert_type(x, _bits(x.dtype))
    return x.astype(jnp.int8 if jnp.issubdtype(x.dtype, jnp.signedinteger) else jnp.uint8)


def _from_bytes(x, dtype):
    if jnp.issubdtype(dtype, jnp.integer):
        return x.astype(dtype)
    return lax.bitcast_convert_type(x.astype(_bits(dtype)), dtype)


def _bits(dtype):
    """Unsigned integers as wide as these floats."""
    return jnp.uint4 if jnp.finfo(dtype).bits == 4 else jnp.uint8
