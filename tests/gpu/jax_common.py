"""What the JAX programs share. Each is started once for each rank, by `oriel run`."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def start(**arguments):
    """Joins the world of GPUs; the mesh over all of it."""
    oriel.init(**arguments)
    devices = np.array(jax.devices())
    assert devices[0].platform == "gpu", devices
    assert devices.size == oriel.size()
    return Mesh(devices, ("x",), axis_types=(AxisType.Auto,))


def sharded(mesh, function, in_specs=P("x"), out_specs=P("x"), **more):
    return jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **more)
    )


def spread(mesh, value):
    """One row for each rank, of which this process holds its own."""
    value = np.asarray(value)
    sharding = NamedSharding(mesh, P("x"))
    return jax.make_array_from_callback(value.shape, sharding, lambda i: value[i])


def own(array):
    """This rank's part."""
    return np.asarray(array.addressable_shards[0].data)


def poison(mebibytes=64, times=4):
    """Leaves NaN in the memory that XLA hands out next."""
    count = mebibytes << 18
    arrays = [jnp.full(count, jnp.nan, jnp.float32) for _ in range(times)]
    jax.block_until_ready(arrays)


def row(name):
    print(f"row {name} ok", flush=True)


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"nothing came within {seconds} s"
        time.sleep(0.01)
