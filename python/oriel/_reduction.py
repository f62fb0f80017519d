"""What a reduction is, for all_reduce and reduce_scatter."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from oriel import _primitive

CODES = {"sum": 0, "prod": 1, "min": 2, "max": 3}  # oriel_redop


def check_op(op):
    if op not in CODES:
        raise ValueError(f"op must be one of sum, prod, min, max, mean; got {op!r}")


def mean_of(total, axes):
    count = _primitive.size_of(axes)
    return jax.tree.map(lambda v: v / count, total)


def check_array(operation, leaf, op):
    """The array to reduce: booleans are summed and multiplied as int32."""
    _primitive.check_array(operation, leaf)
    if jax.typeof(leaf).dtype == bool and op in ("sum", "prod"):
        return lax.convert_element_type(leaf, np.int32)
    return leaf


def check_differentiable(operation, op):
    if op != "sum":
        raise NotImplementedError(f"Differentiation rule for {operation} of {op!r} not implemented")


def over_dims(x, dims, op):
    if op == "sum":
        return jnp.sum(x, dims, dtype=x.dtype)
    if op == "prod":
        return jnp.prod(x, dims, dtype=x.dtype)
    dims = tuple(d % x.ndim for d in dims)
    return lax.reduce_max(x, dims) if op == "max" else lax.reduce_min(x, dims)


def over_batch(x, dim, size, op):
    """Over a dimension of vmap; where `dim` is None all entries are equal."""
    if dim is not None:
        return over_dims(x, (dim,), op)
    if op == "sum":
        return x * np.array(size, x.dtype)
    return lax.integer_pow(x, size) if op == "prod" else x
