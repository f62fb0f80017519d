"""all_reduce as a JAX primitive: types, derivatives, vmap, and the custom call."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from oriel import _compat, _groups, _lib, _world

TARGET = "oriel_all_reduce"
_CODES = {"sum": 0, "prod": 1, "min": 2, "max": 3}  # oriel_redop
_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "float8_e4m3fn float8_e5m2 complex64 complex128".split()
)


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
        total = all_reduce(x, axis_name, "sum")
        count = _world.current().size if axis_name is None else lax.psum(1, axis_name)
        return jax.tree.map(lambda v: v / count, total)
    if op not in _CODES:
        raise ValueError(f"op must be one of sum, prod, min, max, mean; got {op!r}")
    if axis_name is None:
        _check_outside_shard_map()
        return jax.tree.map(lambda leaf: _bind(_checked(leaf, op), None, op), x)
    dims, names = _split_axes(axis_name)
    if not dims and not names:
        return x
    return jax.tree.map(lambda leaf: _reduce(_checked(leaf, op), dims, names, op), x)


def _split_axes(axis_name):
    """(array dimensions, axis names): like lax, an integer means a dimension."""
    axes = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    try:
        repeated = len(set(axes)) != len(axes)
    except TypeError:
        raise TypeError(
            f"axis_name must be a name or a tuple of names, got {axis_name!r}"
        ) from None
    if repeated:
        raise ValueError(f"axis_name repeats an axis: {axis_name!r}")
    names = tuple(a for a in axes if not isinstance(a, int))
    for name in names:
        if not _compat.axis_exists(name):
            raise NameError(
                f"unbound axis name: {name!r}. Call oriel.all_reduce over it inside "
                "jax.shard_map, on a mesh that has this axis"
            )
    return tuple(a for a in axes if isinstance(a, int)), _compat.without_hidden_axes(names)


def _check_outside_shard_map():
    manual = jax.sharding.get_abstract_mesh().manual_axes
    if manual:
        raise ValueError(
            "oriel.all_reduce without axis_name reduces over the whole world and belongs outside "
            f"jax.shard_map; inside it, name the axes: {', '.join(map(repr, manual))}"
        )
    world = _world.current()
    if world.size != world.num_processes:
        raise ValueError(
            "oriel.all_reduce without axis_name needs one device per process; this world has "
            f"{world.size} devices in {world.num_processes} processes: use jax.shard_map and "
            "name the axes"
        )


def _checked(leaf, op):
    try:
        dtype = jax.typeof(leaf).dtype
    except TypeError:
        raise TypeError(
            f"oriel.all_reduce takes arrays; x holds {leaf!r} of type {type(leaf).__name__}"
        ) from None
    if str(dtype) not in _DTYPES:
        raise TypeError(
            f"oriel.all_reduce does not take dtype {dtype}; it takes {', '.join(sorted(_DTYPES))}"
        )
    if dtype == bool and op in ("sum", "prod"):
        return lax.convert_element_type(leaf, np.int32)
    return leaf


def _reduce(x, dims, names, op):
    if op == "sum" and not isinstance(x, jax.core.Tracer):
        return lax.psum(x, dims + names)  # the same on all devices: size * x
    if dims:
        x = _reduce_dims(x, dims, op)
    if not names:
        return x
    return _bind(_compat.make_varying(x, _split_mapped(names)[0]), names, op)


def _reduce_dims(x, dims, op):
    if op == "sum":
        return jnp.sum(x, dims, dtype=x.dtype)
    if op == "prod":
        return jnp.prod(x, dims, dtype=x.dtype)
    dims = tuple(d % x.ndim for d in dims)
    return lax.reduce_max(x, dims) if op == "max" else lax.reduce_min(x, dims)


def _split_mapped(names):
    """(axes of the mesh, axes of vmap)"""
    manual = jax.sharding.get_abstract_mesh().manual_axes
    mesh = tuple(name for name in names if name in manual)
    return mesh, tuple(name for name in names if name not in manual)


# ---- the primitive ---------------------------------------------------------

# Both are the same operation. A program whose mesh comes from jax.set_mesh must
# be lowered anew for each list of devices, because its jaxpr names no devices;
# JAX allows one mesh shape only in programs lowered so, hence not for all.
_plain_p = Primitive("oriel_all_reduce")
_context_p = Primitive("oriel_all_reduce_in_context")


def _bind(x, axes, op, invariant=None):
    """`axes` of None is the world. `invariant`: the result has a type that does
    not vary over the axes, which decides the transpose, as in lax."""
    primitive = _context_p if _compat.in_mesh_context() else _plain_p
    if invariant is None:
        invariant = axes is not None and _compat.checks_varying()
    return primitive.bind(x, axes=axes, op=op, invariant=invariant)


def _abstract_eval(aval, *, axes, op, invariant):
    if axes is None:
        return aval.update(weak_type=False), set()
    mesh_axes, vmap_axes = _split_mapped(axes)
    effects = _compat.axis_effects(vmap_axes)
    if mesh_axes:
        aval, mesh_effects = _compat.reduced_type(aval, mesh_axes)
        effects |= mesh_effects
    return aval, effects


def _jvp(primals, tangents, *, axes, op, invariant):
    if op != "sum":
        raise NotImplementedError(f"Differentiation rule for all_reduce of {op!r} not implemented")
    (x,), (t,) = primals, tangents
    return _bind(x, axes, op, invariant), _bind(t, axes, op, invariant)


def _transpose(cotangent, x, *, axes, op, invariant):
    if not invariant:
        # As lax.psum does: the result is a copy on each device, and the
        # cotangents of the copies add up.
        return (_bind(cotangent, axes, op, invariant),)
    mesh_axes, vmap_axes = _split_mapped(axes)
    if mesh_axes:
        cotangent = lax.pcast(cotangent, mesh_axes, to="varying")
    if vmap_axes:
        cotangent = _bind(cotangent, vmap_axes, op, invariant)
    return (cotangent,)


def _batch(axis_data, args, dims, *, axes, op, invariant):
    (x,), (dim,) = args, dims
    if axes is not None and axis_data.name in axes:
        if dim is not None:
            x = _reduce_dims(x, (dim,), op)
        elif op == "sum":
            x = x * np.array(axis_data.size, x.dtype)
        elif op == "prod":
            x = lax.integer_pow(x, axis_data.size)
        dim = None
        axes = tuple(name for name in axes if name != axis_data.name)
        if not axes:
            return x, dim
    return _bind(x, axes, op, invariant), dim


# ---- lowering --------------------------------------------------------------


class _Sites:
    """Numbers the calls of one module; lives in the module's keepalives."""

    def __init__(self, module):
        name = mlir.ir.StringAttr(module.operation.attributes["sym_name"]).value
        digest = hashlib.sha256(name.encode()).digest()
        # hash() would differ between processes.
        self._module = int.from_bytes(digest[:8], "little") >> 1
        self._count = 0

    def next(self):
        self._count += 1
        return self._module, self._count - 1

    @classmethod
    def of(cls, module_context):
        for kept in module_context.keepalives:
            if isinstance(kept, cls):
                return kept
        sites = cls(module_context.module)
        module_context.add_keepalive(sites)
        return sites


def _call_groups(axis_context, axes):
    """The groups of ranks of one call, as rows."""
    if axes is None:
        if axis_context.num_devices != 1:
            raise ValueError(
                "oriel.all_reduce outside jax.shard_map in a program for "
                f"{axis_context.num_devices} devices: XLA would gather the whole array on each of "
                "them. Put the call inside jax.shard_map and name the axes"
            )
        return np.arange(_world.current().size)[None]
    mesh = axis_context.mesh
    return _groups.of_axes(_world.current().ranks_of(mesh), mesh.axis_names, axes)


def _lower(ctx, x, *, axes, op, invariant):
    groups = _call_groups(ctx.module_context.axis_context, axes)
    if groups.shape[1] == 1 or ctx.avals_in[0].size == 0:
        return [x]
    module, site = _Sites.of(ctx.module_context).next()
    _lib.load().oriel_ffi_lowering(module, site)
    return jax.ffi.ffi_lowering(TARGET)(
        ctx,
        x,
        groups=np.ascontiguousarray(groups, np.int64).ravel(),
        group_size=np.int64(groups.shape[1]),
        reduce=np.int64(_CODES[op]),
        module=np.int64(module),
        site=np.int64(site),
        world=np.int64(_world.current().size),
    )


for _primitive in (_plain_p, _context_p):
    _primitive.def_impl(_compat.apply_primitive(_primitive))
    _primitive.def_effectful_abstract_eval(_abstract_eval)
    ad.deflinear2(_primitive, _transpose)
    ad.primitive_jvps[_primitive] = _jvp
    batching.fancy_primitive_batchers[_primitive] = _batch
    # Not cacheable: two equal calls are two operations and need two numbers.
    mlir.register_lowering(_primitive, _lower, platform="cpu", cacheable=False)
_compat.lower_per_devices(_context_p)
