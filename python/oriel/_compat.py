"""The few names of JAX that are not public. Nothing else imports jax._src."""

import ctypes

from jax import lax
from jax._src import config, core, dispatch, distributed, dtypes, effects, monitoring, xla_bridge
from jax._src import mesh as _mesh
from jax._src.interpreters import mlir, partial_eval
from jax._src.lax import parallel
from jax.sharding import PartitionSpec


def backends_exist():
    return xla_bridge.backends_are_initialized()


def distributed_state():
    """JAX's own record: process_id, num_processes, client, service."""
    return distributed.global_state


def forget_distributed():
    """Makes JAX skip its shutdown, a barrier that a dead process never reaches.

    The objects are leaked: destroying the client would shut it down too."""
    state = distributed.global_state
    for name in ("preemption_sync_manager", "client", "service"):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(getattr(state, name)))
        setattr(state, name, None)


def apply_primitive(primitive):
    """How `primitive` runs when called eagerly."""
    return lambda *args, **params: dispatch.apply_primitive(primitive, *args, **params)


def lower_per_devices(primitive):
    """Makes JAX lower programs with `primitive` anew for each list of devices."""
    dispatch.prim_requires_devices_during_lowering.add(primitive)


def in_mesh_context():
    """Whether jax.set_mesh is in force."""
    return not _mesh.get_concrete_mesh().empty


def context_mesh():
    """The mesh of jax.set_mesh, which may be empty."""
    return _mesh.get_concrete_mesh()


def axis_exists(name):
    return core.get_axis_env().axis_exists(name)


def axis_effects(names):
    return {core.NamedAxisEffect(name) for name in names}


def checks_varying():
    """Whether the surrounding shard_map tracks which values vary (check_vma)."""
    return config._check_vma.value


def without_hidden_axes(axes):
    """Drops the axes of size one where JAX is told to leave them out of types."""
    return parallel._maybe_skip_one_sized_axes(axes)


def make_varying(x, axes):
    return parallel.insert_collective_pvary(axes, x)


def reduced_type(aval, axes):
    """Type and effects of reducing `aval` over mesh axes: exactly lax's rule."""
    return lax.pmax_p.abstract_eval(aval, axes=axes, axis_index_groups=None)


def is_unreduced(operation, x, axes):
    """Whether `x` has still to be summed over mesh axes, by its type."""
    aval = core.typeof(x)
    if aval.mat.unreduced.isdisjoint(axes):
        return False
    return parallel._get_from(aval, axes, operation) == "unreduced"  # raises where some are not


def summed_type(aval, axes):
    """Type and effects of the sum of unreduced `aval`s, which is the same on all devices."""
    return parallel.unreduced_psum_p.abstract_eval(aval, axes=axes)


def scattered_type(aval, axes, size):
    """Of that sum, of which each device keeps a part: entries of the first dimension."""
    return parallel.unreduced_reduce_scatter_p.abstract_eval(
        aval, axis_name=axes, scatter_dimension=0, axis_size=size, tiled=False
    )


def gathered_type(to, aval, axes, size):
    """Of a gather whose result is "reduced" or "invarying": entries of a new first dimension."""
    gather = {
        "reduced": parallel.all_gather_reduced_p,
        "invarying": parallel.all_gather_invariant_p,
    }
    return gather[to].abstract_eval(
        aval, all_gather_dimension=0, axis_name=axes, axis_size=size, tiled=False
    )


def varying_axes(x):
    """The axes over which the type of `x` varies."""
    return core.typeof(x).mat.varying


def exchanged_type(name, aval, axes, lead, drop, weak_type):
    """Type of what an exchange of `aval` over mesh axes gives, after the checks
    that lax makes; `lead` stands for the first `drop` dimensions."""
    parallel.collective_vma_rule(name, axes, aval)
    parallel.check_unreduced_args([aval], axes, name)
    spec = PartitionSpec(*(None,) * len(lead), *tuple(aval.sharding.spec)[drop:])
    return aval.update(
        shape=(*lead, *aval.shape[drop:]),
        weak_type=weak_type,
        sharding=aval.sharding.update(spec=spec),
    )


def element_type(aval, dtype):
    """Of one element that varies as `aval` does."""
    sharding = aval.sharding.update(spec=PartitionSpec(None))
    return aval.update(shape=(1,), dtype=dtypes.dtype(dtype), weak_type=False, sharding=sharding)


def is_tracing():
    """Whether a program is being traced in this thread."""
    return not core.trace_state_clean()


# ---- calls over the world: effects, and what nobody uses ---------------------------


class _WorldEffect(effects.Effect):
    """Keeps a call whose result nobody uses."""

    __str__ = __repr__ = lambda self: "oriel"


class _WorldOrder(_WorldEffect):
    """Keeps the order of calls."""

    __str__ = __repr__ = lambda self: "oriel ordered"


_EFFECT, _ORDER = _WorldEffect(), _WorldOrder()
abstract_token = core.abstract_token

for _kind in (
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _kind.add_type(_WorldEffect)
effects.ordered_effects.add_type(_WorldOrder)


def world_effects(effect, ordered):
    return {_ORDER} if ordered else {_EFFECT} if effect else set()


def world_token(tokens):
    return tokens.get(_ORDER)


def with_world_token(tokens, token):
    return tokens.update_tokens(mlir.TokenSet({_ORDER: token}))


def keep_unused(primitive, is_kept):
    """JAX makes calls of `primitive` whose parameters say so even if nobody uses their results."""

    def rule(*known):  # newer JAX says more of the operands
        eqn = known[-1]
        if not is_kept(eqn.params):
            return partial_eval._default_dce_rule(*known)
        return [True] * len(eqn.invars), eqn

    partial_eval.dce_rules[primitive] = rule


# Modules of JAX whose frames lie between a function that is traced and what traces it.
TRACES = ("jax._src.linear_util", "jax._src.interpreters.partial_eval")


custom_call = mlir.custom_call


# ---- lowering ----------------------------------------------------------------------


def call_when_lowered(function):
    """From now on JAX calls `function` whenever it has lowered a module, in the thread that did."""
    if _listeners.get(function) not in monitoring.get_event_duration_listeners():
        monitoring.register_event_duration_secs_listener(_listener(function))


_listeners = {}


def _listener(function):
    def listen(event, seconds, **_):
        if event == dispatch.JAXPR_TO_MLIR_MODULE_EVENT:
            function()

    _listeners[function] = listen
    return listen
