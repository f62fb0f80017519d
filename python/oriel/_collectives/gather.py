"""all_gather and reduce_scatter, each the transpose of the other.

The primitives have one member after the other along the first dimension;
whatever else a caller asks for is a reshape or a transpose around them."""

import jax
import jax.numpy as jnp
from jax import lax

from oriel import _calls, _compat
from oriel._collectives import divided as _divided
from oriel._collectives import groups as _groups
from oriel._collectives import primitive as _primitive
from oriel._collectives import reduction as _reduction
from oriel._collectives.dtypes import over_key_lists, widened
from oriel._collectives.lists import ListOperation
from oriel._collectives.primitive import Operation, size_of

_gather = ListOperation("all_gather", lead=(0, 1))
_scatter = ListOperation("reduce_scatter", lead=(1, 0))
# Of the types that jax.shard_map gives values besides "varying".
_gather_reduced = Operation("all_gather", kind="reduced_")
_gather_invarying = Operation("all_gather", kind="invarying_")
_scatter_unreduced = Operation("reduce_scatter", kind="unreduced_")
_GATHERS = {"varying": None, "reduced": _gather_reduced, "invarying": _gather_invarying}


@_calls.operation
def all_gather(x, axis_name=None, axis=0, tiled=False, *, axis_index_groups=None, to="varying"):
    """Every device's `x`, one after the other, on every device: lax.all_gather.

    They are stacked along a new dimension `axis` or, where `tiled`, joined along
    the present one. `x` may be a pytree; `axis_name` is a name or a tuple of
    names, axes of vmap among them. Without it, outside shard_map, in a program
    of one device with one device per process, it gathers from the whole world.
    `axis_index_groups`, as in lax, divides the devices along `axis_name` into groups
    of one size, which gather apart. `to` is the result's type over the axes of a
    shard_map with check_vma: "varying", "invarying" or "reduced".
    """
    axis_name = _primitive.divide("all_gather", axis_name, axis_index_groups)
    axes = _primitive.find_axes("all_gather", axis_name)
    _check_to(to, axes)
    if axes == ():
        return x
    to = to if _compat.checks_varying() else "varying"  # without types, as newer lax has it
    if to != "varying":
        _groups.check_undivided(f"all_gather to {to!r}", axes)
    leaves, tree = jax.tree.flatten(x)
    places = [_gathered_axis(leaf, axis, tiled) for leaf in leaves]
    results = [jnp.moveaxis(y, 0, i) for y, i in zip(_bind_gather(leaves, axes, to), places)]
    if tiled:
        results = [_primitive.join(y, i) for y, i in zip(results, places)]
    return jax.tree.unflatten(tree, results)


def _check_to(to, axes):
    if to not in _GATHERS:
        raise ValueError(f"oriel.all_gather: to must be one of {', '.join(_GATHERS)}; got {to!r}")
    if to != "varying" and _groups.over_ranks(axes):
        raise ValueError(f"oriel.all_gather: to={to!r} is a type over axes; name them")


def _gathered_axis(x, axis, tiled):
    _primitive.check_array("all_gather", x)
    ndim = jnp.ndim(x)
    return _primitive.check_dimension("all_gather", "axis", axis, ndim if tiled else ndim + 1)


@_calls.operation
def reduce_scatter(
    x, axis_name=None, scatter_dimension=0, tiled=False, op="sum", *, axis_index_groups=None
):
    """The reduction of every device's `x`, of which each device keeps its part:
    lax.psum_scatter (op="sum"); "mean", "prod", "min", "max", "and", "or" and "xor"
    besides.

    `scatter_dimension` has one entry for each device and vanishes or, where
    `tiled`, is divided among them. Elements are combined as all_reduce does and
    have the same bits; derivatives exist of sum and mean. `x`, `axis_name` and
    `axis_index_groups` are as in all_gather.
    """
    axis_name = _primitive.divide("reduce_scatter", axis_name, axis_index_groups)
    if op == "mean":
        total = reduce_scatter(x, axis_name, scatter_dimension, tiled)
        return _reduction.mean_of(total, axis_name)
    _reduction.check_op(op)
    axes = _primitive.find_axes("reduce_scatter", axis_name)
    if axes == ():
        return x
    leaves, tree = jax.tree.flatten(x)
    blocks = [_blocks_of(leaf, axes, scatter_dimension, tiled, op) for leaf in leaves]
    return jax.tree.unflatten(tree, _bind_scatter(blocks, axes, op))


def _blocks_of(x, axes, dimension, tiled, op):
    """A part for each device, along the first dimension."""
    x = _reduction.check_array("reduce_scatter", x, op)
    name = "scatter_dimension"
    dimension = _primitive.check_dimension("reduce_scatter", name, dimension, jnp.ndim(x))
    x = _primitive.split("reduce_scatter", name, x, dimension, size_of(axes), tiled)
    return jnp.moveaxis(x, dimension, 0)


@over_key_lists
def _bind_gather(arrays, axes, to="varying"):
    if to != "reduced":  # which lax makes only of what varies already
        arrays = [_primitive.make_varying(x, axes) for x in arrays]
    return _bind_to(to, arrays, axes=axes, size=size_of(axes))


def _bind_to(to, arrays, **params):
    if to == "varying":
        return _gather.bind(arrays, **params)
    return [_GATHERS[to].bind(x, **params) for x in arrays]


def _bind_scatter(arrays, axes, op):
    results, rest, names = [None] * len(arrays), {}, _groups.names_of(axes)
    for i, x in enumerate(arrays):
        if op == "sum" and names and _compat.is_unreduced("oriel.reduce_scatter", x, names):
            _groups.check_undivided("reduce_scatter of an unreduced sum", axes)
            results[i] = _scatter_unreduced.bind(x, axes=axes, size=size_of(axes))
        else:
            rest[i] = _primitive.make_varying(x, axes)
    for i, x in zip(rest, _scatter.bind([*rest.values()], axes=axes, op=op), strict=True):
        results[i] = x
    return results


# ---- all_gather --------------------------------------------------------------


def _gather_type(aval, *, axes, size):
    return _primitive.result_type("all_gather", aval, axes, lead=(size,))


def _gather_transpose(cotangents, *, axes, size):
    return widened(_bind_scatter, cotangents, axes, "sum")


def _gather_batch(axis_data, arrays, dims, *, axes, size, to="varying"):
    if axis_data.name not in _groups.names_of(axes):
        results = _bind_to(to, arrays, axes=axes, size=size)
        return results, [None if dim is None else dim + 1 for dim in dims]
    if isinstance(axes, _groups.Divided):
        gather = _divided.gathered
        return _divided.over_mapped("all_gather", axis_data, arrays, dims, axes, gather)
    major, minor = _primitive.without(axes, axis_data.name)
    arrays = [_primitive.batch_first(x, dim, axis_data.size) for x, dim in zip(arrays, dims)]
    if major or minor:
        arrays = [_merged(x, major, minor) for x in _bind_gather(arrays, major + minor, to)]
    return arrays, [None] * len(arrays)


def _merged(x, major, minor):
    """The mapped dimension between those of the other axes."""
    x = _primitive.part(x, size_of(major), size_of(minor))
    return jnp.moveaxis(x, 2, 1).reshape(-1, *x.shape[3:])


def _gather_lower(ctx, arrays, *, axes, size):
    return _gather.lower(ctx, arrays, _gather.groups(ctx, axes))


# ---- reduce_scatter ----------------------------------------------------------


def _scatter_type(aval, *, axes, op):
    return _primitive.result_type("reduce_scatter", aval, axes, drop=1)


def _check_differentiable(*, op, **_):
    _reduction.check_differentiable("reduce_scatter", op)


def _scatter_transpose(cotangents, *, axes, op):
    return _bind_gather(cotangents, axes)


def _scatter_batch(axis_data, arrays, dims, *, axes, op):
    if axis_data.name not in _groups.names_of(axes):
        arrays = [jnp.moveaxis(x, 0, 1) if dim == 0 else x for x, dim in zip(arrays, dims)]
        results = _scatter.bind(arrays, axes=axes, op=op)
        return results, [None if dim is None else max(dim - 1, 0) for dim in dims]
    if isinstance(axes, _groups.Divided):
        scatter = _divided.scattered(op)
        return _divided.over_mapped("reduce_scatter", axis_data, arrays, dims, axes, scatter)
    major, minor = _primitive.without(axes, axis_data.name)
    size = axis_data.size
    arrays = [_reduction.over_batch(x, dim, size, op) for x, dim in zip(arrays, dims)]
    if major or minor:
        arrays = [_regrouped(x, major, size, minor) for x in arrays]
        arrays = _bind_scatter(arrays, major + minor, op)
    return arrays, [0] * len(arrays)


def _regrouped(x, major, size, minor):
    """Blocks of the mapped dimension behind those of the other axes."""
    x = _primitive.part(x, size_of(major), size, size_of(minor))
    x = jnp.moveaxis(x, 1, 2)
    return x.reshape(-1, *x.shape[2:])


def _scatter_lower(ctx, arrays, *, axes, op):
    ordered = _primitive.in_mesh_order(ctx, axes)
    groups = _scatter.groups(ctx, ordered)
    if ordered != axes:
        avals = ctx.avals_in
        arrays = [_reorder_blocks(ctx, aval, x, axes, ordered) for aval, x in zip(avals, arrays)]
    return _scatter.lower(ctx, arrays, groups, reduce=_reduction.CODES[op])


def _reorder_blocks(ctx, aval, x, axes, ordered):
    """Blocks in the order of `axes`, put into another order of the same axes."""
    shape = ctx.module_context.axis_context.mesh.shape
    places = [axes.index(name) for name in ordered]

    def reorder(v):
        w = v.reshape(*(shape[name] for name in axes), *v.shape[1:])
        return w.transpose(*places, *range(len(axes), w.ndim)).reshape(v.shape)

    return _primitive.lower_here(ctx.replace(avals_in=[aval], avals_out=[aval]), reorder, x)[0]


# ---- types that do not vary over the axes, as lax has them --------------------------------


def _reduced_type(aval, *, axes, size):
    return _compat.gathered_type("reduced", aval, axes, size)


def _reduced_transpose(cotangent, x, *, axes, size):
    return (_scatter_unreduced.bind(cotangent, axes=axes, size=size),)


def _reduced_batch(axis_data, args, dims, *, axes, size):
    if axis_data.name in axes:
        raise NotImplementedError(
            f"oriel.all_gather to='reduced' over {axis_data.name!r}, an axis of vmap: such a type "
            "is one over axes of a mesh"
        )
    (y,), (dim,) = _gather_batch(axis_data, args, dims, axes=axes, size=size, to="reduced")
    return y, dim


def _invarying_type(aval, *, axes, size):
    return _compat.gathered_type("invarying", aval, axes, size)


def _invarying_transpose(cotangent, x, *, axes, size):
    own = _primitive.axis_index(axes)
    return (lax.dynamic_index_in_dim(cotangent, own, keepdims=False),)


def _invarying_batch(axis_data, args, dims, *, axes, size):
    (y,), (dim,) = _gather_batch(axis_data, args, dims, axes=axes, size=size, to="invarying")
    return y, dim


def _unreduced_type(aval, *, axes, size):
    return _compat.scattered_type(aval, axes, size)


def _unreduced_transpose(cotangent, x, *, axes, size):
    return _bind_gather([cotangent], axes, "reduced")


def _unreduced_batch(axis_data, args, dims, *, axes, size):
    (x,), (dim,) = args, dims
    if dim == 0:
        x, dim = jnp.moveaxis(x, 0, 1), 1
    return _scatter_unreduced.bind(x, axes=axes, size=size), None if dim is None else dim - 1


def _unreduced_lower(ctx, x, *, axes, size):
    return _scatter_lower(ctx, [x], axes=axes, op="sum")


def _lower_one(ctx, x, *, axes, size):
    return _gather_lower(ctx, [x], axes=axes, size=size)


_gather_reduced.define(_reduced_type, _reduced_batch, _lower_one, linear=_reduced_transpose)
_gather_invarying.define(_invarying_type, _invarying_batch, _lower_one, linear=_invarying_transpose)
_scatter_unreduced.define(
    _unreduced_type, _unreduced_batch, _unreduced_lower, linear=_unreduced_transpose
)
_gather.define(_gather_type, _gather_batch, _gather_lower, _gather_transpose)
_scatter.define(
    _scatter_type, _scatter_batch, _scatter_lower, _scatter_transpose, _check_differentiable
)
