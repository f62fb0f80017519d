"""What the programs share."""

import json

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def report(**values):
    """One line for the test that started this program."""
    print("REPORT " + json.dumps(values), flush=True)


def make_mesh(shape, names, order=None):
    """Over all devices that JAX shows, of all processes."""
    devices = np.array(jax.devices())
    devices = devices if order is None else devices[order]
    return Mesh(devices.reshape(shape), names, axis_types=(AxisType.Auto,) * len(names))


def spread(mesh, value, spec):
    """A global array of which this process holds its part."""
    value = np.asarray(value)
    return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda i: value[i])


def local_parts(array):
    return [np.asarray(shard.data) for shard in array.addressable_shards]


def sharded(mesh, function, in_specs=P("x"), out_specs=P(), **more):
    return jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **more)
    )
