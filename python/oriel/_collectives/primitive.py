"""What the operations share: which ranks take part, types, and the custom call."""

import ctypes
import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from oriel import _calls, _compat, _lib, _world
from oriel._calls import as_attribute
from oriel._collectives import dtypes as _dtypes
from oriel._collectives import groups as _groups

# ---- arguments --------------------------------------------------------------


def find_axes(operation, axis_name):
    """The axes of a call, as groups.py has them."""
    if _groups.over_ranks(axis_name):
        _check_outside_shard_map(operation, axis_name)
        return axis_name
    if isinstance(axis_name, _groups.Divided):
        return axis_name
    axes = list_axes(axis_name)
    check_bound(operation, axes)
    return axes


def list_axes(axis_name):
    axes = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    try:
        repeated = len(set(axes)) != len(axes)
    except TypeError:
        raise TypeError(
            f"axis_name must be a name or a tuple of names, got {axis_name!r}"
        ) from None
    if repeated:
        raise ValueError(f"axis_name repeats an axis: {axis_name!r}")
    return axes


def divide(operation, axis_name, index_groups, even=True):
    """What a call with axis_index_groups is over: None, and it is over `axis_name`."""
    if index_groups is None:
        return axis_name
    if _groups.over_ranks(axis_name):
        raise ValueError(
            f"oriel.{operation}: axis_index_groups={index_groups!r} divides the devices along "
            "axis_name, which is not given; group= lists ranks"
        )
    names = list_axes(axis_name)
    if any(isinstance(name, int) for name in names):
        raise ValueError(
            f"oriel.{operation}: axis_index_groups is for named axes alone; got "
            f"axis_name={axis_name!r}"
        )
    check_bound(operation, names)
    size = size_of(names)
    names = _compat.without_hidden_axes(names)
    return _groups.divide(operation, names, index_groups, size, even) if names else names


def check_bound(operation, names):
    for name in names:
        if not _compat.axis_exists(name):
            raise NameError(
                f"unbound axis name: {name!r}. Call oriel.{operation} over it inside "
                "jax.shard_map, on a mesh that has this axis"
            )


def _check_outside_shard_map(operation, group):
    given, over = "without axis_name", "the whole world"
    if group is not None:
        given, over = f"with group={list(group.ranks)}", "ranks of the world"
    manual = jax.sharding.get_abstract_mesh().manual_axes
    if manual:
        raise ValueError(
            f"oriel.{operation} {given} is over {over} and belongs outside jax.shard_map; inside "
            f"it, name the axes: {', '.join(map(repr, manual))}"
        )
    world = _world.current()
    if world.size != world.num_processes:
        raise ValueError(
            f"oriel.{operation} {given} needs one device per process; this world has "
            f"{world.size} devices in {world.num_processes} processes: use jax.shard_map and "
            "name the axes"
        )
    if group is not None:
        _groups.check_member(operation, group)


def axis_index(axis_name=None, *, group=None):
    """The index of this device along the axes, as a traced number: lax.axis_index. Without
    axis_name the rank in the world, or the index in the group."""
    axes = find_axes("axis_index", _groups.chosen("axis_index", axis_name, group))
    if _groups.over_ranks(axes):
        return jnp.int32(_groups.index_in(axes))
    return lax.axis_index(axes)


def size_of(axes):
    """How many take part."""
    if _groups.over_ranks(axes):
        return len(_groups.ranks_of(axes))
    return len(axes.groups[0]) if isinstance(axes, _groups.Divided) else lax.psum(1, axes)


def check_array(operation, leaf, what="x"):
    try:
        dtype = jax.typeof(leaf).dtype
    except TypeError:
        raise TypeError(
            f"oriel.{operation} takes arrays; {what} holds {leaf!r} of type {type(leaf).__name__}"
        ) from None
    _dtypes.check(operation, dtype)
    return leaf


def check_integer(operation, what, value):
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"oriel.{operation}: {what} must be a whole number, got {value!r}"
        ) from None


def check_dimension(operation, what, value, ndim):
    """`value` as a number from 0; it may count from the end."""
    number = check_integer(operation, what, value)
    if not -ndim <= number < ndim:
        raise ValueError(
            f"oriel.{operation}: {what} is {number}, out of bounds for an array of {ndim} "
            "dimensions"
        )
    return number % ndim


def split_mapped(names):
    """(axes of the mesh, axes of vmap)"""
    manual = jax.sharding.get_abstract_mesh().manual_axes
    mesh = tuple(name for name in names if name in manual)
    return mesh, tuple(name for name in names if name not in manual)


def make_varying(x, axes):
    if _groups.over_ranks(axes):
        return x
    return _compat.make_varying(x, split_mapped(_groups.names_of(axes))[0])


def without(axes, name):
    """(axes before `name`, axes after it)"""
    i = axes.index(name)
    return axes[:i], axes[i + 1 :]


# ---- layouts: one block per member along the first dimension -----------------


def split(operation, what, x, dim, size, tiled):
    """`x` with a dimension of `size` blocks at `dim`; where `tiled`, in front of
    what remains of `dim`."""
    length = jax.typeof(x).shape[dim]
    if not tiled and length != size:
        raise ValueError(
            f"oriel.{operation}: dimension {dim} of x ({what}) has size {length}, but there are "
            f"{size} devices"
        )
    if length % size != 0:
        raise ValueError(
            f"oriel.{operation}: dimension {dim} of x ({what}) has size {length}, which {size} "
            "devices do not divide"
        )
    return part(x, size, length // size, dim=dim) if tiled else x


def part(x, *sizes, dim=0):
    """One dimension as several."""
    return jnp.reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


def join(x, dim):
    """Two dimensions as one."""
    lengths = x.shape[dim : dim + 2]
    return jnp.reshape(x, (*x.shape[:dim], lengths[0] * lengths[1], *x.shape[dim + 2 :]))


def batch_first(x, dim, size):
    """What vmap maps, with the mapped dimension in front."""
    return lax.broadcast(x, (size,)) if dim is None else jnp.moveaxis(x, dim, 0)


# ---- the primitives ---------------------------------------------------------


def axis_effects(axes):
    return _compat.axis_effects(_groups.names_of(axes))


def result_type(operation, aval, axes, lead=(), drop=0):
    """Type and effects of an exchange, as lax has them: the result varies as the
    operand does, and its type is weak if that is, but for what lax exchanges in
    blocks. Its shape is the operand's, with `lead` for the first `drop` dimensions."""
    mesh_axes, _ = split_mapped(_groups.names_of(axes))
    weak = aval.weak_type and operation not in ("all_to_all", "ragged_all_to_all")
    aval = _compat.exchanged_type(f"oriel.{operation}", aval, mesh_axes, lead, drop, weak)
    return aval, axis_effects(axes)


class Operation:
    """Two JAX primitives that are one operation.

    A program whose mesh comes from jax.set_mesh must be lowered anew for each
    list of devices, because its jaxpr names no devices; JAX allows one mesh
    shape only in programs lowered so, hence not for all.

    Each call carries, as the parameter `made`, where and how the person made it (_calls).
    The rules of an operation do without: what they bind is derived from the call at hand."""

    def __init__(self, name, multiple_results=False, kind="", operation=None):
        """`kind` tells primitives of one operation apart; `operation` is what C calls it."""
        self.name = name
        self._operation = operation or name
        self._plain = Primitive(f"oriel_{kind}{name}")
        self._context = Primitive(f"oriel_{kind}{name}_in_context")
        for primitive in (self._plain, self._context):
            primitive.multiple_results = multiple_results

    def bind(self, *operands, **params):
        primitive = self._context if _compat.in_mesh_context() else self._plain
        made = _calls.bound()
        _calls.check(self.name, made, params["axes"])
        # What profilers show; of a kernel, whose.
        name = getattr(params.get("kernel"), "name", self.name)
        with jax.named_scope(f"oriel.{name}"):
            return primitive.bind(*operands, made=made, **params)

    def define(self, abstract_eval, batch, lower, *, jvp=None, linear=None, transpose=None):
        """`linear`: the transpose of an operation that is linear in its one
        operand; otherwise `jvp` and `transpose`."""
        for primitive in (self._plain, self._context):
            primitive.def_impl(_compat.apply_primitive(primitive))
            primitive.def_effectful_abstract_eval(_calls.with_effects(abstract_eval))
            if linear is not None:
                ad.deflinear2(primitive, linear)
                transpose = ad.primitive_transposes[primitive]
            ad.primitive_jvps[primitive] = _calls.remade(jvp or self._jvp)
            if transpose is not None:
                ad.primitive_transposes[primitive] = _calls.remade(transpose, "transposed")
            batching.fancy_primitive_batchers[primitive] = _calls.remade(_agreed(batch))
            _compat.keep_unused(primitive, lambda params: _groups.over_ranks(params["axes"]))
            # Not cacheable: two equal calls are two operations.
            rule = _calls.lowered(lower)
            for platform in ("cpu", "cuda"):
                mlir.register_lowering(primitive, rule, platform=platform, cacheable=False)
        _compat.lower_per_devices(self._context)

    def _jvp(self, primals, tangents, **params):
        return self.bind(*primals, **params), self.bind_tangents(*tangents, **params)

    def bind_tangents(self, *tangents, **params):
        """In a rule for jvp, as bind."""
        with _calls.making(_calls.present().derived("tangent")):
            return self.bind(*tangents, **params)

    def call(
        self,
        ctx,
        operands,
        groups,
        aliases=None,
        target=None,
        space=None,
        communicates=False,
        **attributes,
    ):
        """The custom call of a lowering rule. src/ffi/ffi.h says what it carries;
        `aliases` maps operands to results that share their memory, `target` is another
        name than the operation's; `space` is the memory space of the first operand and the
        first result. What `communicates` uses NCCL's communicator itself."""
        check_not_exported(self.name, ctx)
        numbers = {
            "version": ctypes.c_int64.in_dll(_lib.load(), "oriel_ffi_version").value,
            "kind": _lib.OPERATIONS.index(self._operation) + 1,
            "group_size": groups.shape[1],
            "world": _world.current().size,
        } | attributes
        target = f"oriel_{target or self.name}"
        places = _places_to_borrow(ctx, groups, communicates)
        if places is not None:
            target += "_borrowing"
            numbers |= {"places": places, "communicates": int(communicates)}
        numbers["groups"] = groups
        moved, operands, more = _dtypes.as_moved(ctx, operands)
        numbers |= more
        with _calls.ordered(moved, operands, aliases) as (within, operands, aliases, first):
            # Others take part in it: ranks whose programs differ elsewhere would differ in what
            # XLA merges or moves out of loops. An effect of JAX's costs each dispatch ten times.
            results = jax.ffi.ffi_lowering(
                target,
                operand_output_aliases=aliases,
                extra_attributes=_in_space(space, first) | _calls.note(within),
                has_side_effect=not _is_partitioned(within),
            )(within, *operands, **{name: as_attribute(value) for name, value in numbers.items()})
        return _dtypes.as_given(ctx, _calls.without_token(results))

    def groups(self, ctx, axes):
        """The groups of ranks of one call, as rows."""
        context = ctx.module_context.axis_context
        if not _groups.over_ranks(axes):
            ranks = _world.current().ranks_of(context.mesh)
            return _groups.of_axes(ranks, context.mesh.axis_names, axes)
        if context.num_devices != 1:
            raise ValueError(
                f"oriel.{self.name} outside jax.shard_map in a program for "
                f"{context.num_devices} devices: XLA would gather the whole array on each of "
                "them. Put the call inside jax.shard_map and name the axes"
            )
        return np.array([_groups.ranks_of(axes)])


def _agreed(batch):
    """A rule of vmap. Ranks may map different dimensions, and what one alone has around a call may
    move its own: so the mapped one is in front on all."""

    @functools.wraps(batch)
    def run(axis_data, args, dims, **params):
        args = [x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in zip(args, dims)]
        dims = [None if dim is None else 0 for dim in dims]
        return batch(axis_data, args, dims, **params)

    return run


def check_not_exported(operation, ctx):
    """Where it runs another mesh may stand on other ranks, and another program around it, which
    may hold it twice; nobody tells oriel of either."""
    if ctx.module_context.lowering_parameters.for_export:
        raise NotImplementedError(
            f"oriel.{operation} cannot be exported: the program would hold the numbers of the "
            "ranks on this mesh, and names of its calls that are unique in this program alone; on "
            "another mesh or inside another program wrong data would meet. Export the functions "
            "around it; JAX's compilation cache keeps compiled programs that hold it"
        )


def _is_partitioned(ctx):
    """Whether XLA's partitioner divides the call: in a shard_map that leaves axes to it. It
    refuses side effects there."""
    context = ctx.module_context.axis_context
    mesh = getattr(context, "mesh", None)
    return mesh is not None and context.manual_axes != frozenset(mesh.axis_names)


def may_borrow():
    """Whether calls that need NCCL's communicator use XLA's."""
    choice = _lib.option("ORIEL_NCCL_COMM")
    return choice == "xla" or choice == "auto" and _lib.option("ORIEL_FABRIC") != "nccl"


def _places_to_borrow(ctx, groups, communicates):
    """Where the ranks of `groups` are in the program's list of devices, by which XLA knows
    whom a communicator joins; None: the call borrows none."""
    mesh = getattr(ctx.module_context.axis_context, "mesh", None)
    if _world.current().platform != "gpu" or mesh is None or groups.shape[1] == 1:
        return None
    if _lib.option("ORIEL_NCCL_COMM") != "xla" and not (communicates and may_borrow()):
        return None
    place_of = {rank: place for place, rank in enumerate(_world.current().ranks_of(mesh).flat)}
    place_of[-1] = -1  # the end of a row
    return np.vectorize(place_of.__getitem__, otypes=[np.int64])(groups)


def in_mesh_order(ctx, axes):
    """`axes` in the order in which the mesh has them. Sums are taken in this
    order, so that those over ("x", "y") and ("y", "x") have the same bits; in groups in theirs."""
    if not isinstance(axes, tuple):
        return axes
    return tuple(sorted(axes, key=ctx.module_context.axis_context.mesh.axis_names.index))


def is_copy(ctx, groups):
    """Whether nothing has to be sent: a group of one, or empty arrays."""
    return groups.shape[1] == 1 or ctx.avals_in[0].size == 0


def lower_copy(ctx, x):
    """The operand, in the shape of the result."""
    return lower_here(ctx, lambda v: v.reshape(ctx.avals_out[0].shape), x)


def lower_here(ctx, function, x):
    """`function`, which communicates nothing, as part of a lowering rule."""
    return mlir.lower_fun(function, multiple_results=False)(ctx, x)


_COLLECTIVE = 1  # XLA's number of the memory space


def _in_space(space, first):
    """What tells XLA's colouring of buffers where the `first` ones of a custom call belong."""
    if space is None:
        return {}
    text = mlir.ir.StringAttr.get(f"{{{first}:{_COLLECTIVE}}}")
    names = ("operands_memory_spaces", "results_memory_spaces")
    return {"mhlo.frontend_attributes": mlir.ir.DictAttr.get({name: text for name in names})}
