"""reduce_scatter, bias and relu: in one kernel, and one after the other.

    oriel run -n 2 -- python run.py [rows] [cols]"""

import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

fused = oriel.kernel(pathlib.Path(__file__).with_name("fused.cu"))
ROUNDS = 20


def together(x, bias):
    out = jax.ShapeDtypeStruct((x.shape[0] // oriel.size(), x.shape[1]), x.dtype)
    return fused(x, bias, out=out, axis_name="x")


def apart(x, bias):
    return jnp.maximum(oriel.reduce_scatter(x, "x", tiled=True) + bias, 0)


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    cols = int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    oriel.init()
    rows = rows // oriel.size() * oriel.size()
    mesh = Mesh(np.array(jax.devices()), ("x",))
    rng = np.random.default_rng(0)
    values = rng.normal(size=(oriel.size() * rows, cols)).astype(np.float32)
    bias = jnp.asarray(rng.normal(size=cols).astype(np.float32))
    x = jax.make_array_from_callback(
        values.shape, NamedSharding(mesh, P("x")), lambda i: values[i])
    results, times = [], []
    for function in (together, apart):
        step = jax.jit(jax.shard_map(
            function, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x")))
        y = step(x, bias).block_until_ready()
        results.append(np.asarray(y.addressable_data(0)))
        samples = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            step(x, bias).block_until_ready()
            samples.append(time.perf_counter() - begun)
        times.append(sorted(samples)[ROUNDS // 2] * 1e6)
    ok = np.array_equal(*results)
    print(f"[proc {oriel.process_id()}/{oriel.num_processes()}] {rows} x {cols}: in one kernel "
          f"{times[0]:.0f} us, one after the other {times[1]:.0f} us, ALL_OK={ok}")
    oriel.finalize()


main()
