"""What a reduction is, for all_reduce and reduce_scatter."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from oriel._collectives import groups as _groups
from oriel._collectives import primitive as _primitive

CODES = {"sum": 0, "prod": 1, "min": 2, "max": 3, "and": 4, "or": 5, "xor": 6}  # oriel_redop
_BITWISE = {"and": lax.reduce_and, "or": lax.reduce_or, "xor": lax.reduce_xor}
COMBINE = {  # two arrays
    "sum": lax.add,
    "prod": lax.mul,
    "min": lax.min,
    "max": lax.max,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
}


PLACES = {"minloc": "min", "maxloc": "max"}


def check_op(op):
    if op not in CODES:
        raise ValueError(f"op must be one of {', '.join((*CODES, *PLACES))}, mean; got {op!r}")


def with_place(x, axes, op, reduce):
    """(minimum or maximum, index of the first that has it) for each array."""
    if any(isinstance(axis, int) for axis in _primitive.list_axes(axes)):
        raise ValueError(f"all_reduce: {op!r} is over axes of devices; got axis_name={axes!r}")
    axes = _groups.undivided(axes)
    index, nobody = _primitive.axis_index(axes), _primitive.size_of(axes)

    def found(v, best):
        return jnp.where((v == best) | ((v != v) & (best != best)), index, nobody)

    best = reduce(x, op=PLACES[op])
    first = reduce(jax.tree.map(found, x, best), op="min")
    return jax.tree.map(lambda *pair: pair, best, first)


def widen(x):
    """In the dtype in which the C library accumulates."""
    dtype = jax.typeof(x).dtype
    narrow = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4
    return x.astype(jnp.float32) if narrow else x


def mean_of(total, axes):
    count = _primitive.size_of(axes)
    if not _groups.is_even(axes):
        count = jnp.asarray(axes.sizes())[lax.axis_index(axes.names)]
    return jax.tree.map(lambda v: v / count, total)


def check_array(operation, leaf, op):
    """The array to reduce: booleans are summed and multiplied as int32."""
    _primitive.check_array(operation, leaf)
    if op in _BITWISE and jax.typeof(leaf).dtype.kind not in "biu":
        raise TypeError(
            f"{operation}: {op!r} combines the bits of integers and booleans, and this array has "
            f"dtype {jax.typeof(leaf).dtype}"
        )
    if jax.typeof(leaf).dtype == bool and op in ("sum", "prod"):
        return lax.convert_element_type(leaf, np.int32)
    return leaf


def check_differentiable(operation, op):
    if op != "sum":
        raise NotImplementedError(f"Differentiation rule for {operation} of {op!r} not implemented")


def over_dims(x, dims, op):
    if op in ("sum", "prod"):
        wide, combine = widen(x), jnp.sum if op == "sum" else jnp.prod
        return combine(wide, dims, dtype=wide.dtype).astype(x.dtype)
    dims = tuple(d % x.ndim for d in dims)
    if op in _BITWISE:
        return _BITWISE[op](x, dims)
    return lax.reduce_max(x, dims) if op == "max" else lax.reduce_min(x, dims)


def over_batch(x, dim, size, op):
    """Over a dimension of vmap; where `dim` is None all entries are equal."""
    if dim is not None:
        return over_dims(x, (dim,), op)
    wide = widen(x)
    if op == "sum":
        return (wide * np.array(size).astype(wide.dtype)).astype(x.dtype)
    if op == "prod":
        return lax.integer_pow(wide, size).astype(x.dtype)
    if op == "xor" and size % 2 == 0:
        return jnp.zeros_like(x)
    return x
