"""all_reduce as a JAX primitive: types, derivatives, vmap, and the custom call."""

import functools

import jax
from jax import lax

from oriel import _calls, _compat, _lib, _world
from oriel._collectives import divided as _divided
from oriel._collectives import groups as _groups
from oriel._collectives import primitive as _primitive
from oriel._collectives import reduction as _reduction
from oriel._collectives.lists import ListOperation
from oriel._collectives.primitive import Operation

_operation = ListOperation("all_reduce")
_unreduced = Operation("all_reduce", kind="unreduced_")

# oriel_via
VIAS = ("auto", "peer", "nccl", "lsa", "sym_peer", "multicast", "sym_multimem")
_ON_CPUS = ("auto", "peer")


@_calls.operation
def all_reduce(x, axis_name=None, op="sum", *, axis_index_groups=None, via=None, memory_space=None):
    """Reduces every array of the pytree `x` over the devices of mesh axes.

    Inside jax.shard_map it is lax.psum (op="sum"), lax.pmean ("mean"), lax.pmax
    ("max") or lax.pmin ("min") with another engine; "prod" has no counterpart in
    lax, nor have "and", "or" and "xor", which are jnp.bitwise_and and so on: of
    integers and booleans. "minloc" and "maxloc" give a pair in the place of each
    array: the minimum or maximum, and the index along the axes, as int32, of the
    first device that has it. `axis_name` is a name or a tuple of names, axes of vmap among them.
    Derivatives exist where lax has them: of sum and mean. The elements are
    combined in group order, so every rank and every run gets the same bits;
    f16, bf16 and f8 accumulate in f32. Booleans are summed and multiplied as
    int32.

    Without `axis_name`, outside shard_map, in a program of one device with one
    device per process, it reduces over the whole world. `axis_index_groups`, as in
    lax, divides the devices along `axis_name` into groups that reduce apart, which may be of
    different size.

    `via` names how it goes on GPUs: "peer" (oriel's kernels on addresses of peers),
    "nccl" (ncclAllReduce, on oriel's communicator or on XLA's), "lsa" (a kernel
    on NCCL's window and its barrier), "sym_peer" (oriel's kernels on NCCL's
    window), "multicast" and "sym_multimem" (the switch sums). By default oriel chooses.
    One that is not to be had raises, and says what is missing. The order of
    sums in "nccl" and the last two is not oriel's. All devices must name the
    same. `memory_space="collective"` has XLA place operand and result where it
    places those of its own symmetric collectives (jaxlib 0.10 or newer; no
    effect on CPUs).
    """
    axis_name = _primitive.divide("all_reduce", axis_name, axis_index_groups, even=False)
    if op == "mean":
        total = all_reduce(x, axis_name, "sum", via=via, memory_space=memory_space)
        return _reduction.mean_of(total, axis_name)
    if op in _reduction.PLACES:
        reduce = functools.partial(
            all_reduce, axis_name=axis_name, via=via, memory_space=memory_space
        )
        return _reduction.with_place(x, axis_name, op, reduce)
    _reduction.check_op(op)
    how = _check_via(via), _check_space(memory_space)
    leaves, tree = jax.tree.flatten(x)
    if _groups.over_ranks(axis_name):
        axes = _primitive.find_axes("all_reduce", axis_name)
        results = _bind([_checked(leaf, op) for leaf in leaves], axes, op, how)
        return jax.tree.unflatten(tree, results)
    dims, names = _split_axes(axis_name)
    if not dims and not names:
        return x
    results = _reduce([_checked(leaf, op) for leaf in leaves], dims, names, op, how)
    return jax.tree.unflatten(tree, results)


def all_reduce_vias():
    """What all_reduce takes as `via`: for each name None if it is to be had in this world, else
    the sentence that says what is missing. Whether XLA lends its communicator to "nccl" where
    oriel has none is seen only when a program runs."""
    vias = {}
    for via in VIAS:
        try:
            _check_via(via, may_borrow=False)
            vias[via] = None
        except (ValueError, _lib.OrielError) as error:
            vias[via] = str(error)
    return vias


def _check_via(via, may_borrow=True):
    if via is None:
        return "auto"
    if via not in VIAS:
        raise ValueError(f"via must be one of {', '.join(VIAS)}; got {via!r}")
    world = _world.current()
    if world.platform == "cpu" and via not in _ON_CPUS:
        raise ValueError(
            f"all_reduce via {via!r} needs ranks that are GPUs; this world has CPUs, where "
            f"{' and '.join(map(repr, _ON_CPUS))} are possible"
        )
    if world.platform == "cpu":
        return "auto"
    if via == "nccl" and may_borrow and _primitive.may_borrow():
        return via
    # Of f32 sums, which all vias have; what is missing for others the call itself says.
    _lib.call("oriel_ffi_via_check", VIAS.index(via), _F32, _reduction.CODES["sum"])
    return via


_F32 = 11  # oriel_dtype


def _check_space(memory_space):
    if memory_space not in (None, "collective"):
        raise ValueError(f"memory_space must be None or 'collective'; got {memory_space!r}")
    return memory_space


def _checked(leaf, op):
    return _reduction.check_array("all_reduce", leaf, op)


def _split_axes(axis_name):
    """(array dimensions, axes): like lax, an integer means a dimension."""
    if isinstance(axis_name, _groups.Divided):
        return (), axis_name
    axes = _primitive.list_axes(axis_name)
    names = tuple(a for a in axes if not isinstance(a, int))
    _primitive.check_bound("all_reduce", names)
    return tuple(a for a in axes if isinstance(a, int)), _compat.without_hidden_axes(names)


def _reduce(arrays, dims, names, op, how):
    results, rest = [None] * len(arrays), {}
    for i, x in enumerate(arrays):
        if op == "sum" and not isinstance(x, jax.core.Tracer) and _groups.is_even(names):
            over, groups = dims + _groups.names_of(names), _groups.index_groups_of(names)
            results[i] = lax.psum(x, over, axis_index_groups=groups)  # size * x on all devices
        elif op == "sum" and _is_unreduced(x, names):
            results[i] = _unreduced.bind(x, axes=names, how=how)
        else:
            rest[i] = _reduction.over_dims(x, dims, op) if dims else x
    bound = rest.values()
    if names:
        bound = _bind([_primitive.make_varying(x, names) for x in bound], names, op, how)
    for i, x in zip(rest, bound, strict=True):
        results[i] = x
    return results


def _is_unreduced(x, axes):
    names = _groups.names_of(axes)
    if not names or not _compat.is_unreduced("oriel.all_reduce", x, names):
        return False
    _groups.check_undivided("all_reduce of an unreduced sum", axes)
    return True


def _bind(arrays, axes, op, how, invariant=None):
    """`how`: (via, memory_space). `invariant`: the
    result has a type that does not vary over the axes, which decides the
    transpose, as in lax."""
    if invariant is None:
        invariant = isinstance(axes, tuple) and _compat.checks_varying()
    return _operation.bind(arrays, axes=axes, op=op, how=how, invariant=invariant)


def _abstract_eval(aval, *, axes, op, how, invariant):
    if _groups.over_ranks(axes):
        return aval.update(weak_type=False), set()
    if isinstance(axes, _groups.Divided):
        return _primitive.result_type("all_reduce", aval, axes)
    mesh_axes, vmap_axes = _primitive.split_mapped(axes)
    effects = _compat.axis_effects(vmap_axes)
    if mesh_axes:
        aval, mesh_effects = _compat.reduced_type(aval, mesh_axes)
        effects |= mesh_effects
    return aval, effects


def _check_differentiable(*, op, **_):
    _reduction.check_differentiable("all_reduce", op)


def _transpose(cotangents, *, axes, op, how, invariant):
    if not invariant:
        # As lax.psum does: the result is a copy on each device, and the
        # cotangents of the copies add up.
        return _bind(cotangents, axes, op, how, invariant)
    mesh_axes, vmap_axes = _primitive.split_mapped(axes)
    if mesh_axes:
        cotangents = [lax.pcast(x, mesh_axes, to="varying") for x in cotangents]
    if vmap_axes:
        cotangents = _bind(cotangents, vmap_axes, op, how, invariant)
    return cotangents


def _batch(axis_data, arrays, dims, *, axes, op, how, invariant):
    if axis_data.name in _groups.names_of(axes):
        if isinstance(axes, _groups.Divided):
            reduce = _divided.reduced(op)
            return _divided.over_mapped("all_reduce", axis_data, arrays, dims, axes, reduce)
        size = axis_data.size
        arrays = [_reduction.over_batch(x, dim, size, op) for x, dim in zip(arrays, dims)]
        dims = [None] * len(arrays)
        axes = tuple(name for name in axes if name != axis_data.name)
        if not axes:
            return arrays, dims
    return _bind(arrays, axes, op, how, invariant), dims


def lower(ctx, arrays, *, axes, op, how, invariant):
    groups = _operation.groups(ctx, _primitive.in_mesh_order(ctx, axes))
    via, space = how
    return _operation.lower(
        ctx,
        arrays,
        groups,
        target="all_reduce_nccl" if via == "nccl" else None,
        space=space,
        communicates=via == "nccl",
        reduce=_reduction.CODES[op],
        via=VIAS.index(via),
    )


# ---- of what a type calls unreduced: summed, it is the same on all devices -----------------


def _unreduced_type(aval, *, axes, how):
    return _compat.summed_type(aval, axes)


def _unreduced_transpose(cotangent, x, *, axes, how):
    return (lax.pcast(cotangent, axes, to="reduced"),)


def _unreduced_batch(axis_data, args, dims, *, axes, how):
    return _unreduced.bind(*args, axes=axes, how=how), dims[0]


def _unreduced_lower(ctx, x, *, axes, how):
    return lower(ctx, [x], axes=axes, op="sum", how=how, invariant=True)


_unreduced.define(_unreduced_type, _unreduced_batch, _unreduced_lower, linear=_unreduced_transpose)
_operation.define(_abstract_eval, _batch, lower, _transpose, _check_differentiable)
