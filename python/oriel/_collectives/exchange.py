"""all_to_all, broadcast and permute."""

import operator

import jax
import jax.numpy as jnp
import numpy as np

from oriel import _calls
from oriel._collectives import divided as _divided
from oriel._collectives import groups as _groups
from oriel._collectives import primitive as _primitive
from oriel._collectives.all_reduce import all_reduce
from oriel._collectives.dtypes import over_key_lists, over_keys, widened
from oriel._collectives.lists import ListOperation
from oriel._collectives.primitive import Operation, size_of

_all_to_all = Operation("all_to_all")
_broadcast = ListOperation("broadcast")
_permute = Operation("permute")


# ---- all_to_all --------------------------------------------------------------


@_calls.operation
def all_to_all(x, axis_name, split_axis, concat_axis, tiled=False, *, axis_index_groups=None):
    """Part i of every device's `x` goes to device i: lax.all_to_all.

    `split_axis` has one entry for each device and vanishes, and what has come
    is stacked along a new dimension `concat_axis`. Where `tiled`, `split_axis`
    is divided among the devices, and what has come is joined along
    `concat_axis`. `x` may be a pytree; `axis_name` is a name or a tuple of
    names, axes of vmap among them, or None for the whole world. `axis_index_groups`
    is as in all_gather.
    """
    axis_name = _primitive.divide("all_to_all", axis_name, axis_index_groups)
    axes = _primitive.find_axes("all_to_all", axis_name)
    return jax.tree.map(
        lambda leaf: _all_to_all_leaf(leaf, axes, split_axis, concat_axis, tiled), x
    )


def _all_to_all_leaf(x, axes, split_axis, concat_axis, tiled):
    _primitive.check_array("all_to_all", x)
    ndim = jnp.ndim(x)
    split_axis = _primitive.check_dimension("all_to_all", "split_axis", split_axis, ndim)
    concat_axis = _primitive.check_dimension("all_to_all", "concat_axis", concat_axis, ndim)
    x = _primitive.split("all_to_all", "split_axis", x, split_axis, size_of(axes), tiled)
    y = jnp.moveaxis(_bind_all_to_all(jnp.moveaxis(x, split_axis, 0), axes), 0, concat_axis)
    return _primitive.join(y, concat_axis) if tiled else y


@over_keys
def _bind_all_to_all(x, axes):
    return _all_to_all.bind(_primitive.make_varying(x, axes), axes=axes) if axes != () else x


def _all_to_all_type(aval, *, axes):
    return _primitive.result_type("all_to_all", aval, axes)


def _all_to_all_transpose(cotangent, x, *, axes):
    return (_bind_all_to_all(cotangent, axes),)


def _all_to_all_batch(axis_data, args, dims, *, axes):
    (x,), (dim,) = args, dims
    if axis_data.name not in _groups.names_of(axes):
        if dim == 0:
            x, dim = jnp.moveaxis(x, 0, 1), 1
        return _all_to_all.bind(x, axes=axes), dim
    if isinstance(axes, _groups.Divided):
        exchange = _divided.exchanged
        (y,), _ = _divided.over_mapped("all_to_all", axis_data, args, dims, axes, exchange)
        return y, 0
    # The blocks for the entries of the mapped dimension become that dimension,
    # and it becomes the blocks.
    major, minor = _primitive.without(axes, axis_data.name)
    sizes = size_of(major), axis_data.size, size_of(minor)
    x = jnp.moveaxis(_primitive.batch_first(x, dim, axis_data.size), 0, 1)
    x = jnp.swapaxes(_primitive.part(x, *sizes), 1, 3)
    if major or minor:
        x = jnp.moveaxis(x, 1, 2)
        y = _bind_all_to_all(x.reshape(-1, *x.shape[2:]), major + minor)
        x = jnp.moveaxis(y.reshape(x.shape), 2, 1)
    return x.reshape(-1, *x.shape[3:]), 1


def _all_to_all_lower(ctx, x, *, axes):
    groups = _all_to_all.groups(ctx, axes)
    return [x] if _primitive.is_copy(ctx, groups) else _all_to_all.call(ctx, [x], groups)


# ---- broadcast ---------------------------------------------------------------


@_calls.operation
def broadcast(x, axis_name=None, root=0):
    """`x` of the device with index `root` along the axes, on every device:
    lax.pbroadcast.

    `x` may be a pytree; `axis_name` is a name or a tuple of names, axes of vmap
    among them. Without it, outside shard_map, in a program of one device with
    one device per process, `root` is a rank of the world.
    """
    axes = _primitive.find_axes("broadcast", axis_name)
    root, size = _primitive.check_integer("broadcast", "root", root), size_of(axes)
    if not 0 <= root < size:
        raise ValueError(f"oriel.broadcast: root is {root}, but there are {size} devices")
    leaves, tree = jax.tree.flatten(x)
    checked = [_primitive.check_array("broadcast", leaf) for leaf in leaves]
    return jax.tree.unflatten(tree, _bind_broadcast(checked, axes, root))


@over_key_lists
def _bind_broadcast(arrays, axes, root):
    if axes == ():
        return arrays
    arrays = [_primitive.make_varying(x, axes) for x in arrays]
    return _broadcast.bind(arrays, axes=axes, root=root)


def _broadcast_type(aval, *, axes, root):
    return _primitive.result_type("broadcast", aval, axes)


def _broadcast_transpose(cotangents, *, axes, root):
    # The sum for the root, zeros for the others: no device's own index occurs in
    # the program, which must be the same for all. Axis by axis, because a permute
    # takes neither axes in another order than the mesh's nor those of vmap among them.
    totals = widened(all_reduce, cotangents, axes)
    if _groups.over_ranks(axes):
        return [_bind_permute(total, axes, ((root, root),)) for total in totals]
    for name, place in zip(axes, np.unravel_index(root, [size_of((a,)) for a in axes])):
        stays = ((int(place), int(place)),)
        totals = [_bind_permute(total, (name,), stays) for total in totals]
    return totals


def _broadcast_batch(axis_data, arrays, dims, *, axes, root):
    if axis_data.name not in _groups.names_of(axes):
        return _broadcast.bind(arrays, axes=axes, root=root), dims
    major, minor = _primitive.without(axes, axis_data.name)
    sizes = size_of(major), axis_data.size, size_of(minor)
    i, j, k = (int(place) for place in np.unravel_index(root, sizes))
    arrays = [x if dim is None else jnp.take(x, j, dim) for x, dim in zip(arrays, dims)]
    return _bind_broadcast(arrays, major + minor, i * sizes[2] + k), [None] * len(arrays)


def _broadcast_lower(ctx, arrays, *, axes, root):
    return _broadcast.lower(ctx, arrays, _broadcast.groups(ctx, axes), root=root)


# ---- permute -----------------------------------------------------------------


@_calls.operation
def permute(x, axis_name, perm):
    """Sends `x` along the (source, destination) pairs of `perm`: lax.ppermute.

    No device is source twice or destination twice; one that is no destination gets
    zeros. `x` may be a pytree; `axis_name` is a name of the mesh or of vmap, or
    a tuple of names in the order of the mesh, or None for the whole world.
    """
    axes = _primitive.find_axes("permute", axis_name)
    pairs = _check_pairs(perm, size_of(axes))
    return jax.tree.map(
        lambda leaf: _bind_permute(_primitive.check_array("permute", leaf), axes, pairs), x
    )


def _check_pairs(perm, size):
    """The pairs, counted from 0 and sorted: the order they are in means nothing."""
    try:
        pairs = [(operator.index(source), operator.index(to)) for source, to in perm]
    except (TypeError, ValueError):
        raise TypeError(
            f"oriel.permute: perm must be a list of pairs of integers, got {perm!r}"
        ) from None
    for place in (place for pair in pairs for place in pair):
        if not -size <= place < size:
            raise ValueError(
                f"oriel.permute: perm names device {place}, but there are {size}: {perm!r}"
            )
    pairs = sorted((source % size, to % size) for source, to in pairs)
    if any(len(set(ends)) != len(ends) for ends in zip(*pairs)):
        raise ValueError(f"oriel.permute: sources and destinations must be unique, got {perm!r}")
    return tuple(pairs)


@over_keys
def _bind_permute(x, axes, pairs):
    if axes == ():
        return x if pairs else jnp.zeros_like(x)
    return _permute.bind(_primitive.make_varying(x, axes), axes=axes, pairs=pairs)


def _permute_type(aval, *, axes, pairs):
    return _primitive.result_type("permute", aval, axes)


def _permute_transpose(cotangent, x, *, axes, pairs):
    back = tuple(sorted((to, source) for source, to in pairs))
    return (_bind_permute(cotangent, axes, back),)


def _permute_batch(axis_data, args, dims, *, axes, pairs):
    (x,), (dim,) = args, dims
    if axis_data.name not in _groups.names_of(axes):
        return _permute.bind(x, axes=axes, pairs=pairs), dim
    if len(axes) > 1:
        raise NotImplementedError(
            f"oriel.permute over {axes}, of which vmap maps {axis_data.name!r}, together"
        )
    x = _primitive.batch_first(x, dim, axis_data.size)
    y = jnp.zeros_like(x)
    if pairs:
        sources, to = map(np.array, zip(*pairs))
        y = y.at[to].set(x[sources])
    return y, 0


def _permute_lower(ctx, x, *, axes, pairs):
    groups = _permute.groups(ctx, axes)
    if not np.array_equal(groups, _permute.groups(ctx, _primitive.in_mesh_order(ctx, axes))):
        raise ValueError(
            f"oriel.permute over {axes}: lax.ppermute counts devices in the order of the mesh, "
            f"{_primitive.in_mesh_order(ctx, axes)}; name the axes in this order"
        )
    if not pairs:
        return _primitive.lower_here(ctx, jnp.zeros_like, x)
    if _primitive.is_copy(ctx, groups):
        return [x]
    return _permute.call(ctx, [x], groups, pairs=pairs)


def lower_pairs(ctx, x, ranks, pairs):
    """A permutation over a group of ranks, which is another call's."""
    return _permute.call(ctx, [x], np.array([ranks]), pairs=pairs)


_all_to_all.define(
    _all_to_all_type, _all_to_all_batch, _all_to_all_lower, linear=_all_to_all_transpose
)
_broadcast.define(_broadcast_type, _broadcast_batch, _broadcast_lower, _broadcast_transpose)
_permute.define(_permute_type, _permute_batch, _permute_lower, linear=_permute_transpose)
