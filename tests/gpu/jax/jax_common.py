"""What the JAX programs share. Each is started once for each rank, by `oriel run`."""

import ctypes
import os
import signal
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


def nccl_refusal():
    """Why NCCL would not take ranks that share a GPU; None: it would. JAX brings an NCCL of
    its own, an older one; LD_PRELOAD puts another before it."""
    if os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1":
        return "NCCL_MULTI_RANK_GPU_ENABLE is not 1"
    if "nccl" not in os.environ.get("LD_PRELOAD", ""):
        return "LD_PRELOAD names no NCCL"
    version = ctypes.c_int()
    ctypes.CDLL(None).ncclGetVersion(ctypes.byref(version))
    if version.value < 23000:
        return f"NCCL {version.value}: 2.30 is the first that lets ranks share a GPU"
    return None


def row(name):
    print(f"row {name} ok", flush=True)


def failure_of(function):
    """What the exception says that it raises."""
    try:
        function()
    except Exception as error:
        return str(error)
    raise AssertionError("nothing was raised")


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"nothing came within {seconds} s"
        time.sleep(0.01)


def outlive_process_1(step, y, seconds):
    """It dies while calls are on their way. The others have an error that names it within
    `seconds`; what their last run has given. MPS may take their CUDA contexts down with that of
    the dead: then XLA's error says no more than this, and oriel.check() names it."""
    began = time.monotonic()
    if oriel.rank() == 1:
        for _ in range(40):
            y = step(y)
        while y.is_ready():
            y = step(y)
        os.kill(os.getpid(), signal.SIGKILL)

    def run():
        nonlocal y
        while time.monotonic() - began < seconds:
            y = jax.block_until_ready(step(y))

    said = failure_of(run)
    lost = "CUDA_ERROR" in said and "CUDA_MPS_PIPE_DIRECTORY" in os.environ
    if lost:
        said = failure_of(lambda: wait_for(oriel.check, seconds))
    assert "process 1" in said and "is gone" in said, said
    row(
        f"a death is named after {time.monotonic() - began:.1f} s"
        + (", the context is lost" if lost else "")
    )
    return y


def finalize_within(seconds):
    began = time.monotonic()
    oriel.finalize()
    took = time.monotonic() - began
    assert took < seconds, f"finalize took {took} s"
    row(f"finalize after {took:.1f} s")
