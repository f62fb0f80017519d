"""The few names of JAX that are not public. Nothing else imports jax._src."""

import ctypes

from jax import lax
from jax._src import config, core, dispatch, distributed, xla_bridge
from jax._src import mesh as _mesh
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


def varying_axes(x):
    """The axes over which the type of `x` varies."""
    return core.typeof(x).mat.varying


def exchanged_type(name, aval, axes, lead, drop):
    """Type of what an exchange of `aval` over mesh axes gives, after the checks
    that lax makes; `lead` stands for the first `drop` dimensions."""
    parallel.collective_vma_rule(name, axes, aval)
    parallel.check_unreduced_args([aval], axes, name)
    spec = PartitionSpec(*(None,) * len(lead), *tuple(aval.sharding.spec)[drop:])
    return aval.update(
        shape=(*lead, *aval.shape[drop:]),
        weak_type=False,
        sharding=aval.sharding.update(spec=spec),
    )
