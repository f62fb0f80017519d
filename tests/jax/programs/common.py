"""What the programs share."""

import json
import traceback

import jax
import numpy as np
import oriel
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def report(**values):
    """One line for the test that started this program."""
    print("REPORT " + json.dumps(values), flush=True)


def refused(call, *words, kind=ValueError):
    """It raises, in these words."""
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"accepted, {words}")


def run_cases(cases, names):
    """Functions by name; each reports how it ended. Of an error of oriel's the sentence."""
    for name in names:
        try:
            cases[name]()
            report(case=name, ok=True)
        except oriel.OrielError as error:
            report(case=name, ok=False, text=str(error))
        except Exception:
            report(case=name, ok=False, text=traceback.format_exc())


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
