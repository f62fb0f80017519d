"""all_reduce as a JAX primitive: types, derivatives, vmap, and the custom call."""

import jax
from jax import lax

from oriel import _compat, _primitive, _reduction
from oriel._primitive import Operation

_operation = Operation("all_reduce")


def all_reduce(x, axis_name=None, op="sum"):
    """Reduces every array of the pytree `x` over the devices of mesh axes.

    Inside jax.shard_map it is lax.psum (op="sum"), lax.pmean ("mean"), lax.pmax
    ("max") or lax.pmin ("min") with another engine; "prod" has no counterpart in
    lax. `axis_name` is a name or a tuple of names, axes of vmap among them.
    Derivatives exist where lax has them: of sum and mean. The elements are
    combined in group order, so every rank and every run gets the same bits;
    f16, bf16 and f8 accumulate in f32. Booleans are summed and multiplied as
    int32.

    Without `axis_name`, outside shard_map, in a program of one device with one
    device per process, it reduces over the whole world.
    """
    if op == "mean":
        return _reduction.mean_of(all_reduce(x, axis_name, "sum"), axis_name)
    _reduction.check_op(op)
    if axis_name is None:
        _primitive.find_axes("all_reduce", None)
        return jax.tree.map(lambda leaf: _bind(_checked(leaf, op), None, op), x)
    dims, names = _split_axes(axis_name)
    if not dims and not names:
        return x
    return jax.tree.map(lambda leaf: _reduce(_checked(leaf, op), dims, names, op), x)


def _checked(leaf, op):
    return _reduction.check_array("all_reduce", leaf, op)


def _split_axes(axis_name):
    """(array dimensions, axis names): like lax, an integer means a dimension."""
    axes = _primitive.list_axes(axis_name)
    names = tuple(a for a in axes if not isinstance(a, int))
    _primitive.check_bound("all_reduce", names)
    return tuple(a for a in axes if isinstance(a, int)), _compat.without_hidden_axes(names)


def _reduce(x, dims, names, op):
    if op == "sum" and not isinstance(x, jax.core.Tracer):
        return lax.psum(x, dims + names)  # the same on all devices: size * x
    if dims:
        x = _reduction.over_dims(x, dims, op)
    return _bind(_primitive.make_varying(x, names), names, op) if names else x


def _bind(x, axes, op, invariant=None):
    """`axes` of None is the world. `invariant`: the result has a type that does
    not vary over the axes, which decides the transpose, as in lax."""
    if invariant is None:
        invariant = axes is not None and _compat.checks_varying()
    return _operation.bind(x, axes=axes, op=op, invariant=invariant)


def _abstract_eval(aval, *, axes, op, invariant):
    if axes is None:
        return aval.update(weak_type=False), set()
    mesh_axes, vmap_axes = _primitive.split_mapped(axes)
    effects = _compat.axis_effects(vmap_axes)
    if mesh_axes:
        aval, mesh_effects = _compat.reduced_type(aval, mesh_axes)
        effects |= mesh_effects
    return aval, effects


def _jvp(primals, tangents, *, axes, op, invariant):
    _reduction.check_differentiable("all_reduce", op)
    (x,), (t,) = primals, tangents
    return _bind(x, axes, op, invariant), _bind(t, axes, op, invariant)


def _transpose(cotangent, x, *, axes, op, invariant):
    if not invariant:
        # As lax.psum does: the result is a copy on each device, and the
        # cotangents of the copies add up.
        return (_bind(cotangent, axes, op, invariant),)
    mesh_axes, vmap_axes = _primitive.split_mapped(axes)
    if mesh_axes:
        cotangent = lax.pcast(cotangent, mesh_axes, to="varying")
    if vmap_axes:
        cotangent = _bind(cotangent, vmap_axes, op, invariant)
    return (cotangent,)


def _batch(axis_data, args, dims, *, axes, op, invariant):
    (x,), (dim,) = args, dims
    if axes is not None and axis_data.name in axes:
        x, dim = _reduction.over_batch(x, dim, axis_data.size, op), None
        axes = tuple(name for name in axes if name != axis_data.name)
        if not axes:
            return x, dim
    return _bind(x, axes, op, invariant), dim


def _lower(ctx, x, *, axes, op, invariant):
    groups = _operation.groups(ctx, _primitive.in_mesh_order(ctx, axes))
    if _primitive.is_copy(ctx, groups):
        return [x]
    return _operation.call(ctx, [x], groups, reduce=_reduction.CODES[op])


_operation.define(_abstract_eval, _batch, _lower, jvp=_jvp, linear=_transpose)
