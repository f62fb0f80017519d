"""barrier: an identity that waits."""

import jax

from oriel import _calls
from oriel._collectives import dtypes as _dtypes
from oriel._collectives import groups as _groups
from oriel._collectives import primitive as _primitive
from oriel._collectives.primitive import Operation

_operation = Operation("barrier", multiple_results=True)


@_calls.operation
def barrier(x, axis_name=None):
    """The pytree `x`, once every device has come here with its own.

    What uses the result happens after everything that made any device's `x`.
    There is no other order: JAX drops a barrier whose result nobody uses. Its
    derivative is that of the identity. `axis_name` is a name or a tuple of
    names; without it, outside shard_map, in a program of one device with one
    device per process, it waits for the whole world.
    """
    axes = _primitive.find_axes("barrier", axis_name)
    leaves, tree = jax.tree.flatten(x)
    for leaf in leaves:
        _primitive.check_array("barrier", leaf)
    if axes == () or not leaves:
        return x
    passed = _operation.bind(*map(_dtypes.data_of, leaves), axes=axes)
    return jax.tree.unflatten(tree, map(_dtypes.like, leaves, passed))


def _abstract_eval(*avals, axes):
    return list(avals), _primitive.axis_effects(axes)


def _jvp(primals, tangents, *, axes):
    return _operation.bind(*primals, axes=axes), list(tangents)


def _batch(axis_data, args, dims, *, axes):
    if axis_data.name in _groups.names_of(axes):
        axes = tuple(name for name in axes if name != axis_data.name)
    return (list(args) if axes == () else _operation.bind(*args, axes=axes)), dims


def _lower(ctx, *operands, axes):
    groups = _operation.groups(ctx, axes)
    if groups.shape[1] == 1:
        return operands
    aliases = {i: i for i in range(len(operands))}
    return _operation.call(ctx, operands, groups, aliases)


_operation.define(_abstract_eval, _batch, _lower, jvp=_jvp)
