"""ragged_all_to_all: rows from anywhere to anywhere."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import ad, mlir

from oriel import _calls, _compat
from oriel._collectives import dtypes as _dtypes
from oriel._collectives import groups as _groups
from oriel._collectives import primitive as _primitive
from oriel._collectives.exchange import all_to_all
from oriel._collectives.primitive import Operation, size_of

_operation = Operation("ragged_all_to_all")
_INDICES = ("input_offsets", "send_sizes", "output_offsets", "recv_sizes")


@_calls.operation
def ragged_all_to_all(
    operand,
    output,
    input_offsets,
    send_sizes,
    output_offsets,
    recv_sizes,
    *,
    axis_name,
    axis_index_groups=None,
):
    """Slices of rows of `operand` go to the other devices, into their `output`:
    lax.ragged_all_to_all.

    The last four are vectors of integers with the same number of entries for
    each device. Entry k sends send_sizes[k] rows from row input_offsets[k] on to
    row output_offsets[k] of the receiver's `output`; recv_sizes[k] is how many
    come from there. The result is `output` with these rows replaced. Rows that
    are sent twice get one of the two cotangents, as in lax. `axis_index_groups` is
    as in all_gather.
    """
    axis_name = _primitive.divide("ragged_all_to_all", axis_name, axis_index_groups)
    axes = _primitive.find_axes("ragged_all_to_all", axis_name)
    indices = input_offsets, send_sizes, output_offsets, recv_sizes
    _check_arrays(operand, output, indices, 1 if axes == () else size_of(axes))
    rows = map(_dtypes.data_of, (operand, output))
    return _dtypes.like(output, _bind(*rows, *map(_widen, indices), axes=axes))


def _check_arrays(operand, output, indices, size):
    name = "ragged_all_to_all"
    for what, array in (("operand", operand), ("output", output), *zip(_INDICES, indices)):
        _primitive.check_array(name, array, what)
    rows, into = jax.typeof(operand), jax.typeof(output)
    if rows.ndim < 1 or rows.shape[1:] != into.shape[1:] or rows.dtype != into.dtype:
        raise ValueError(
            f"oriel.{name}: rows of operand and output must be alike, got "
            f"{rows.str_short()} and {into.str_short()}"
        )
    for what, array in zip(_INDICES, map(jax.typeof, indices)):
        if not jnp.issubdtype(array.dtype, jnp.integer):
            raise ValueError(f"oriel.{name} {what} must be integer type, got {array.dtype}")
        if array.ndim != 1 or array.size == 0:
            raise ValueError(
                f"oriel.{name} {what} must be rank 1 with positive dimension size, but got shape "
                f"{array.shape}"
            )
        if array.size % size != 0:
            raise ValueError(
                f"oriel.{name}: {what} must have the same number of entries for each of {size} "
                f"devices, got shape {array.shape}"
            )
        if array.shape != jax.typeof(indices[0]).shape:
            raise ValueError(
                f"oriel.{name}: {what} has shape {array.shape}, input_offsets has "
                f"{jax.typeof(indices[0]).shape}"
            )


def _widen(index):
    """Of few bits it would not reach the rows of other entries of vmap, nor the end of the last."""
    narrow = jnp.iinfo(jax.typeof(index).dtype).bits < 32
    return lax.convert_element_type(index, jnp.int32) if narrow else index


def _all_varying(*arrays, axes):
    names = frozenset(_primitive.split_mapped(_groups.names_of(axes))[0])
    names = tuple(names.union(*map(_compat.varying_axes, arrays)))
    return [_compat.make_varying(x, names) for x in arrays]


def _bind(*arrays, axes):
    return _operation.bind(*_all_varying(*arrays, axes=axes), axes=axes)


def _abstract_eval(operand, output, *indices, axes):
    return _primitive.result_type("ragged_all_to_all", output, axes)


def _jvp(primals, tangents, *, axes):
    indices = primals[2:]
    rows = map(ad.instantiate_zeros, tangents[:2])
    result = _bind(*primals, axes=axes)
    return result, _operation.bind_tangents(*_all_varying(*rows, *indices, axes=axes), axes=axes)


def _transpose(cotangent, operand, output, *indices, axes):
    wanted = [ad.is_undefined_primal(x) for x in (operand, output)]
    results = [None, None]
    if type(cotangent) is ad.Zero:
        results = [ad.Zero(x.aval) if want else None for x, want in zip((operand, output), wanted)]
        return results + [None] * 4
    input_offsets, send_sizes, output_offsets, recv_sizes = indices
    came_to = all_to_all(output_offsets, axes, 0, 0, tiled=True)
    if wanted[0]:
        came_from = all_to_all(input_offsets, axes, 0, 0, tiled=True)
        zeros = jnp.zeros(operand.aval.shape, operand.aval.dtype)
        back = came_to, recv_sizes, came_from, send_sizes
        results[0] = _bind(cotangent, zeros, *back, axes=axes)
    if wanted[1]:
        replaced = _mark(came_to, recv_sizes, cotangent.shape[0])
        replaced = replaced.reshape(-1, *(1,) * (cotangent.ndim - 1))
        results[1] = jnp.where(replaced, jnp.zeros_like(cotangent), cotangent)
    return results + [None] * 4


def _mark(starts, sizes, count):
    """Which of `count` rows lie in a slice."""
    edges = jnp.zeros(count + 1, "int32").at[starts].add(1).at[starts + sizes].add(-1)
    return jnp.cumsum(edges)[:count] > 0


def _batch(axis_data, args, dims, *, axes):
    if axis_data.name in _groups.names_of(axes):
        raise NotImplementedError("oriel.ragged_all_to_all over an axis of vmap")
    # One call for all entries, each with rows of its own.
    size = axis_data.size
    rows = [_primitive.batch_first(x, d, size) for x, d in zip(args[:2], dims[:2])]
    indices = [_primitive.batch_first(x, d, size).T for x, d in zip(args[2:], dims[2:])]
    for i, array in ((0, rows[0]), (2, rows[1])):
        indices[i] += jnp.arange(size, dtype=indices[i].dtype)[None] * array.shape[1]
    merged = [x.reshape(-1, *x.shape[2:]) for x in (*rows, *indices)]
    return _bind(*merged, axes=axes).reshape(rows[1].shape), 0


def _lower(ctx, operand, output, *indices, axes):
    groups = _operation.groups(ctx, axes)
    if 0 in (ctx.avals_in[0].size, ctx.avals_in[1].size):
        return [output]
    wide = mlir.ir.RankedTensorType.get(ctx.avals_in[2].shape, mlir.ir.IntegerType.get_signless(64))
    indices = [stablehlo.ConvertOp(wide, x).result for x in indices]
    avals = [aval.update(dtype=np.dtype("int64")) for aval in ctx.avals_in[2:]]
    ctx = ctx.replace(avals_in=[*ctx.avals_in[:2], *avals])
    return _operation.call(ctx, [operand, output, *indices], groups, {1: 0})


_operation.define(_abstract_eval, _batch, _lower, jvp=_jvp, transpose=_transpose)
