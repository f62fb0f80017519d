"""gather, scatter, reduce and scan, which MPI has and lax has not.

Over axes every device has a result of one shape. Over the world each rank has a program of its
own: what only the root has all of is elsewhere as large as one rank's part.

Each is also a composition of other operations: on GPUs, where C has none of the four, and where
vmap maps an axis that they are over."""

import jax
import jax.numpy as jnp
from jax import lax

from oriel import _calls, _world
from oriel._collectives import groups as _groups
from oriel._collectives import primitive as _primitive
from oriel._collectives import reduction as _reduction
from oriel._collectives.all_reduce import all_reduce
from oriel._collectives.dtypes import over_keys
from oriel._collectives.exchange import broadcast
from oriel._collectives.gather import all_gather
from oriel._collectives.primitive import Operation, axis_index, size_of

_gather = Operation("gather")
_scatter = Operation("scatter")
_reduce = Operation("reduce")
_scan = Operation("scan")


@_calls.operation
def gather(x, axis_name=None, root=0, axis=0, tiled=False):
    """Every device's `x`, one after the other, on the device with index `root` along the axes.

    They are stacked along a new dimension `axis` or, where `tiled`, joined along the present
    one. The other devices get zeros of the same shape. `x` may be a pytree; `axis_name` is a name
    or a tuple of names, axes of vmap among them. Without it, outside shard_map, in a program of
    one device with one device per process, `root` is a rank of the world, and the other ranks get
    their own `x`. Its derivative is a scatter.
    """
    axes = _primitive.find_axes("gather", axis_name)
    root = _check_root("gather", root, axes)
    if axes == ():
        return x
    return jax.tree.map(lambda leaf: _gather_leaf(leaf, axes, root, axis, tiled), x)


def _gather_leaf(x, axes, root, axis, tiled):
    _primitive.check_array("gather", x)
    ndim = jnp.ndim(x)
    axis = _primitive.check_dimension("gather", "axis", axis, ndim if tiled else ndim + 1)
    y = _bind_gather(x, axes, root)
    if _is_part(axes, root):
        return y
    y = jnp.moveaxis(y, 0, axis)
    return _primitive.join(y, axis) if tiled else y


@_calls.operation
def scatter(x, axis_name=None, root=0, axis=0, tiled=False):
    """Part i of the `x` of the device with index `root` goes to device i.

    Dimension `axis` has one entry for each device and vanishes or, where `tiled`, is divided
    among them. What the other devices have in `x` is not read; over axes it has the same shape.
    Without `axis_name`, over the world, the `x` of ranks other than the root has the shape of the
    result. Other arguments are as in gather, which is its derivative.
    """
    axes = _primitive.find_axes("scatter", axis_name)
    root = _check_root("scatter", root, axes)
    if axes == ():
        return x
    return jax.tree.map(lambda leaf: _scatter_leaf(leaf, axes, root, axis, tiled), x)


def _scatter_leaf(x, axes, root, axis, tiled):
    _primitive.check_array("scatter", x)
    if not _is_part(axes, root):
        axis = _primitive.check_dimension("scatter", "axis", axis, jnp.ndim(x))
        x = _primitive.split("scatter", "axis", x, axis, size_of(axes), tiled)
        x = jnp.moveaxis(x, axis, 0)
    return _bind_scatter(x, axes, root)


@_calls.operation
def reduce(x, axis_name=None, op="sum", root=0):
    """The reduction of every device's `x` on the device with index `root` along the axes; the
    other devices get their own `x`.

    `op` is "sum", "prod", "min" or "max"; of integers and booleans also "and", "or" and "xor".
    Elements are combined as all_reduce does and have the same bits; the sum has a derivative.
    Other arguments are as in gather.
    """
    _check_op("reduce", op)
    axes = _primitive.find_axes("reduce", axis_name)
    root = _check_root("reduce", root, axes)
    if axes == ():
        return x
    return jax.tree.map(
        lambda leaf: _bind_reduce(_reduction.check_array("reduce", leaf, op), axes, op, root), x
    )


@_calls.operation
def scan(x, axis_name=None, op="sum"):
    """The reduction of the `x` of all devices up to this one, itself included, in the order of
    their index along the axes.

    Arguments are as in reduce; the sum has a derivative.
    """
    _check_op("scan", op)
    axes = _primitive.find_axes("scan", axis_name)
    if axes == ():
        return x
    return jax.tree.map(
        lambda leaf: _bind_scan(_reduction.check_array("scan", leaf, op), axes, op), x
    )


def _check_op(operation, op):
    if op not in _reduction.CODES:
        names = ", ".join(_reduction.CODES)
        raise ValueError(f"oriel.{operation}: op must be one of {names}; got {op!r}")


def _check_root(operation, root, axes):
    root, size = _primitive.check_integer(operation, "root", root), size_of(axes)
    if not 0 <= root < size:
        raise ValueError(f"oriel.{operation}: root is {root}, but there are {size} devices")
    return root


def _is_part(axes, root):
    """Whether this program is that of a rank other than the root, and has only its part."""
    return _groups.over_ranks(axes) and _groups.index_in(axes) != root


def _is_root(axes, root):
    """As a traced value, on which what a rank does with a result may depend: then the result is
    used on all ranks, and all make the calls of its derivative."""
    return axis_index(axes) == root


def _composes():
    return _world.current().platform == "gpu"


@over_keys
def _bind_gather(x, axes, root):
    x = _primitive.make_varying(x, axes)
    if _composes():
        return compose_gather(x, axes, root)
    size, part = size_of(axes), _is_part(axes, root)
    return _gather.bind(x, axes=axes, size=size, root=root, part=part)


@over_keys
def _bind_scatter(x, axes, root):
    x = _primitive.make_varying(x, axes)
    if _composes():
        return compose_scatter(x, axes, root)
    return _scatter.bind(x, axes=axes, root=root, part=_is_part(axes, root))


def _bind_reduce(x, axes, op, root):
    x = _primitive.make_varying(x, axes)
    if _composes():
        return compose_reduce(x, axes, op, root)
    return _reduce.bind(x, axes=axes, op=op, root=root)


def _bind_scan(x, axes, op, reverse=False):
    x = _primitive.make_varying(x, axes)
    if _composes():
        return compose_scan(x, axes, op, reverse)
    return _scan.bind(x, axes=axes, op=op, reverse=reverse)


# ---- compositions --------------------------------------------------------------


def compose_gather(x, axes, root):
    everything = all_gather(x, axes)
    if _is_part(axes, root):
        return everything[_groups.index_in(axes)]
    return jnp.where(_is_root(axes, root), everything, jnp.zeros_like(everything))


def compose_scatter(x, axes, root):
    if _is_part(axes, root):
        shape = (size_of(axes), *x.shape)
        x = jnp.where(_is_root(axes, root), jnp.broadcast_to(x, shape), jnp.zeros(shape, x.dtype))
    return lax.dynamic_index_in_dim(broadcast(x, axes, root), axis_index(axes), keepdims=False)


def compose_reduce(x, axes, op, root):
    return jnp.where(_is_root(axes, root), all_reduce(x, axes, op), x)


def compose_scan(x, axes, op, reverse):
    """One after the other, as the C library does."""
    everything = _reduction.widen(all_gather(x, axes))
    index = axis_index(axes)
    if reverse:
        everything, index = everything[::-1], size_of(axes) - 1 - index

    def step(total, entry):
        place, value = entry
        return jnp.where(place <= index, _reduction.COMBINE[op](total, value), total), None

    places = jnp.arange(1, len(everything))
    first = _primitive.make_varying(everything[0], axes)
    return lax.scan(step, first, (places, everything[1:]))[0].astype(x.dtype)


def _over_mapped(axis_data, x, dim, compose, *arguments):
    """`compose` where vmap maps one of its axes."""
    mapped = jax.vmap(
        lambda v: compose(v, *arguments),
        in_axes=(dim,),
        axis_name=axis_data.name,
        axis_size=axis_data.size,
    )
    return mapped(x), 0


def _is_mapped(axis_data, axes):
    return axis_data.name in _groups.names_of(axes)


# ---- gather --------------------------------------------------------------------


def _gather_type(aval, *, axes, size, root, part):
    return _primitive.result_type("gather", aval, axes, lead=() if part else (size,))


def _gather_transpose(cotangent, x, *, axes, size, root, part):
    y = _bind_scatter(cotangent, axes, root)
    return (y + cotangent if part else y,)


def _gather_batch(axis_data, args, dims, *, axes, size, root, part):
    (x,), (dim,) = args, dims
    if _is_mapped(axis_data, axes):
        return _over_mapped(axis_data, x, dim, compose_gather, axes, root)
    y = _gather.bind(x, axes=axes, size=size, root=root, part=part)
    return y, dim if dim is None or part else dim + 1


def _gather_lower(ctx, x, *, axes, size, root, part):
    groups = _gather.groups(ctx, axes)
    if _primitive.is_copy(ctx, groups):
        return _primitive.lower_copy(ctx, x)
    return _gather.call(ctx, [x], groups, root=root)


# ---- scatter -------------------------------------------------------------------


def _scatter_type(aval, *, axes, root, part):
    return _primitive.result_type("scatter", aval, axes, drop=0 if part else 1)


def _scatter_transpose(cotangent, x, *, axes, root, part):
    y = _bind_gather(cotangent, axes, root)
    return (jnp.where(_is_root(axes, root), y, jnp.zeros_like(y)) if part else y,)


def _scatter_batch(axis_data, args, dims, *, axes, root, part):
    (x,), (dim,) = args, dims
    if _is_mapped(axis_data, axes):
        return _over_mapped(axis_data, x, dim, compose_scatter, axes, root)
    if dim is not None and not part:  # behind that of the blocks
        x, dim = jnp.moveaxis(x, dim, 1), 1
    return _scatter.bind(x, axes=axes, root=root, part=part), None if dim is None else 0


def _scatter_lower(ctx, x, *, axes, root, part):
    groups = _scatter.groups(ctx, axes)
    if _primitive.is_copy(ctx, groups):
        return _primitive.lower_copy(ctx, x)
    return _scatter.call(ctx, [x], groups, root=root)


# ---- reduce --------------------------------------------------------------------


def _reduce_type(aval, *, axes, op, root):
    return _primitive.result_type("reduce", aval, axes)


def _reduce_jvp(primals, tangents, *, axes, op, root):
    _reduction.check_differentiable("reduce", op)
    params = {"axes": axes, "op": op, "root": root}
    return _reduce.bind(*primals, **params), _reduce.bind_tangents(*tangents, **params)


def _reduce_transpose(cotangent, x, *, axes, op, root):
    own = jnp.where(_is_root(axes, root), jnp.zeros_like(cotangent), cotangent)
    return (broadcast(cotangent, axes, root) + own,)


def _reduce_batch(axis_data, args, dims, *, axes, op, root):
    (x,), (dim,) = args, dims
    if _is_mapped(axis_data, axes):
        return _over_mapped(axis_data, x, dim, compose_reduce, axes, op, root)
    return _reduce.bind(x, axes=axes, op=op, root=root), dim


def _reduce_lower(ctx, x, *, axes, op, root):
    named = _reduce.groups(ctx, axes)
    groups = _reduce.groups(ctx, _primitive.in_mesh_order(ctx, axes))
    if _primitive.is_copy(ctx, groups):
        return [x]
    place = groups[0].tolist().index(named[0][root])
    return _reduce.call(ctx, [x], groups, root=place, reduce=_reduction.CODES[op])


# ---- scan ----------------------------------------------------------------------


def _scan_type(aval, *, axes, op, reverse):
    return _primitive.result_type("scan", aval, axes)


def _scan_jvp(primals, tangents, *, axes, op, reverse):
    _reduction.check_differentiable("scan", op)
    params = {"axes": axes, "op": op, "reverse": reverse}
    return _scan.bind(*primals, **params), _scan.bind_tangents(*tangents, **params)


def _scan_transpose(cotangent, x, *, axes, op, reverse):
    return (_bind_scan(cotangent, axes, op, not reverse),)


def _scan_batch(axis_data, args, dims, *, axes, op, reverse):
    (x,), (dim,) = args, dims
    if _is_mapped(axis_data, axes):
        return _over_mapped(axis_data, x, dim, compose_scan, axes, op, reverse)
    return _scan.bind(x, axes=axes, op=op, reverse=reverse), dim


def _scan_lower(ctx, x, *, axes, op, reverse):
    groups = _scan.groups(ctx, axes)
    if _primitive.is_copy(ctx, groups):
        return [x]
    groups = groups[:, ::-1] if reverse else groups
    return _scan.call(ctx, [x], groups, reduce=_reduction.CODES[op])


_gather.define(_gather_type, _gather_batch, _gather_lower, linear=_gather_transpose)
_scatter.define(_scatter_type, _scatter_batch, _scatter_lower, linear=_scatter_transpose)
_reduce.define(
    _reduce_type, _reduce_batch, _reduce_lower, jvp=_reduce_jvp, linear=_reduce_transpose
)
_scan.define(_scan_type, _scan_batch, _scan_lower, jvp=_scan_jvp, linear=_scan_transpose)
