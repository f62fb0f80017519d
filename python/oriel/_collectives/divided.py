"""Operations over axes whose devices form groups (axis_index_groups), where vmap maps the axis: then
all operands are here."""

import jax.numpy as jnp
import numpy as np

from oriel._collectives import primitive as _primitive
from oriel._collectives import reduction as _reduction


def over_mapped(operation, axis_data, arrays, dims, axes, function):
    """The results, one for each entry of the mapped dimension, in front. `function` makes them of
    the operands of groups of one size; both have lead dimensions (group, member)."""
    if len(axes.names) > 1:
        raise NotImplementedError(
            f"oriel.{operation} with axis_index_groups over {axes.names}, of which vmap maps "
            f"{axis_data.name!r}, together"
        )
    arrays = [_primitive.batch_first(x, dim, axis_data.size) for x, dim in zip(arrays, dims)]
    return [_by_groups(x, axes.groups, function) for x in arrays], [0] * len(arrays)


def _by_groups(parts, groups, function):
    places, results = [], []
    for size in sorted(set(map(len, groups))):
        members = np.array([group for group in groups if len(group) == size])
        places.append(members.ravel())
        results.append(_primitive.join(function(parts[members]), 0))
    return jnp.concatenate(results)[np.argsort(np.concatenate(places))]


def reduced(op):
    def function(parts):
        return jnp.broadcast_to(_reduction.over_dims(parts, (1,), op)[:, None], parts.shape)

    return function


def gathered(parts):
    groups, size, *rest = parts.shape
    return jnp.broadcast_to(parts[:, None], (groups, size, size, *rest))


def scattered(op):
    return lambda parts: _reduction.over_dims(parts, (1,), op)


def exchanged(parts):
    return jnp.swapaxes(parts, 1, 2)
