"""How programs read and write windows: two primitives, `oriel_load` and `oriel_store`, each a copy
on one device that meets nobody. To JAX a window is an array that never changes, so what comes before
is told by operands. _calls/windows.py takes the copies away where a call of oriel's is next to one."""

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from oriel import _compat


class Handle:
    """What stands for an array in windows: a Window."""

    def _operand(self):
        """The array, for a program that is given it."""
        raise NotImplementedError


def load(window, after=None):
    """What a window has, as an ordinary array: a copy, made once `after` is there.

    window   as a function inside jit was given it
    after    a ticket, or any array or pytree of arrays: what is computed of it may be read
    """
    if not isinstance(window, Handle):
        raise TypeError(f"oriel.load: window must be an oriel.Window, got {type(window).__name__}")
    return _load.bind(*_alike([window._operand(), *_before("load", after)]))


def store(x, into, after=None, *, effect=False):
    """Writes `x` to a window once `after` is there; returns a ticket, an array of one element that
    is there when the window has been written.

    effect   it is made though nobody uses the ticket, in loops and inner functions too
    """
    return _write("store", load(x, after) if _is_handle(x) else x, into, after, effect)


def through(name, function, args, keywords, into, after, effect):
    """Calls an operation on windows: those among its arguments, and those that results go to."""
    found = []

    def read(x):
        if not isinstance(x, Handle):
            return x
        found.append(x)
        return _array_of(x, after)

    args, keywords = jax.tree.map(read, (tuple(args), keywords), is_leaf=_is_handle)
    if after is not None and not found and into is None:
        raise ValueError(
            f"oriel.{name}: after orders what reads or writes a window: x is none, and into= is "
            "not given"
        )
    results = function(args, keywords)
    if into is None:
        return results
    if isinstance(into, Handle):
        return _write(name, results, into, after, effect)
    if not isinstance(into, (tuple, list)) or not isinstance(results, (tuple, list)):
        raise TypeError(f"oriel.{name}: into must be an oriel.Window, got {into!r}")
    if len(into) != len(results):
        raise ValueError(f"oriel.{name}: into has {len(into)} windows for {len(results)} results")
    return tuple(_write(name, x, one, after, effect) for x, one in zip(results, into))


def has_handles(args, keywords):
    return any(map(_is_handle, jax.tree.leaves((args, keywords), is_leaf=_is_handle)))


def arrays_of(x):
    """A pytree with the arrays of windows in their place."""
    return jax.tree.map(lambda v: _array_of(v) if _is_handle(v) else v, x, is_leaf=_is_handle)


def _array_of(window, after=None):
    """In a program what is read of it, which _calls/windows.py may find to be the window itself."""
    if after is None and not _compat.is_tracing():
        return window._operand()
    return load(window, after)


def _is_handle(x):
    return isinstance(x, Handle)


def _before(name, after):
    for leaf in (leaves := jax.tree.leaves(after, is_leaf=_is_handle)):
        if not isinstance(leaf, (jax.Array, jax.core.Tracer)):
            raise TypeError(f"oriel.{name}: after must be a ticket or another array, got {leaf!r}")
    return leaves


def _write(name, x, into, after, effect):
    if not isinstance(into, Handle):
        raise TypeError(f"oriel.{name}: into must be an oriel.Window, got {type(into).__name__}")
    window = into._operand()
    given, has = jax.typeof(x), jax.typeof(window)
    if (given.shape, given.dtype) != (has.shape, has.dtype):
        raise ValueError(
            f"oriel.{name}: the result is {given.str_short()}, the window that it goes to is "
            f"{has.str_short()}"
        )
    return _store.bind(*_alike([window, jnp.asarray(x), *_before(name, after)]), effect=effect)


def _alike(arrays):
    """All varying over the same axes."""
    names = tuple(frozenset().union(*map(_compat.varying_axes, arrays)))
    return [_compat.make_varying(x, names) for x in arrays]


# ---- the primitives --------------------------------------------------------------------

_load, _store = Primitive("oriel_load"), Primitive("oriel_store")


def _load_type(window, *after):
    return window.update(weak_type=False), set()


def _load_jvp(primals, tangents):
    """What a window holds is what it was given as: of what is stored there is no derivative."""
    return _load.bind(*primals), tangents[0]


def _load_batch(args, dims):
    return _load.bind(*args), dims[0]


def _store_type(window, x, *after, effect):
    return _compat.element_type(window, jnp.int32), _compat.world_effects(effect, False)


def _store_jvp(primals, tangents, *, effect):
    raise TypeError(
        "oriel.store: what is written to a window (into=) has no derivative: stop the gradient with "
        "jax.lax.stop_gradient"
    )


def _store_batch(args, dims, *, effect):
    window, x, *after = args
    if dims[0] is None and dims[1] is not None:
        raise ValueError(
            "oriel.store: vmap has a value for each entry, and one window for all of them (into=): "
            "map the window too"
        )
    if dims[0] is not None:
        mapped = batching.bdim_at_front(x, dims[1], window.shape[dims[0]])
        x = jnp.moveaxis(mapped, 0, dims[0])
    return _store.bind(window, x, *after, effect=effect), None


def _lowered(ctx, *operands, **params):
    from oriel import _calls  # which has the operations, and they have this
    from oriel._collectives import primitive

    context = ctx.module_context.axis_context
    mesh = getattr(context, "mesh", None)
    name = ctx.primitive.name
    primitive.check_not_exported(name.removeprefix("oriel_"), ctx)
    if mesh is None and context.num_devices != 1:
        raise ValueError(
            f"{name.replace('_', '.')} outside jax.shard_map in a program for "
            f"{context.num_devices} devices: XLA would gather the window on each of them"
        )
    _calls.watch(ctx)
    partly = mesh is not None and context.manual_axes != frozenset(mesh.axis_names)
    return jax.ffi.ffi_lowering(name, has_side_effect=not partly)(ctx, *operands)


def _define(primitive, abstract_eval, jvp, batch):
    primitive.def_impl(_compat.apply_primitive(primitive))
    primitive.def_effectful_abstract_eval(abstract_eval)
    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = batch
    _compat.keep_unused(primitive, lambda params: primitive is _store)
    # Not cacheable: two equal calls are two.
    mlir.register_lowering(primitive, _lowered, platform="cpu", cacheable=False)


_define(_load, _load_type, _load_jvp, _load_batch)
_define(_store, _store_type, _store_jvp, _store_batch)
