"""reduce_scatter, bias and relu: in one kernel, and one after the other.

oriel run -n 2 -- python run.py [rows] [cols]      one size, once: are the bits equal?
oriel run -n 2 -- python run.py --bench [MiB ...]  times, for each process's x of so many MiB"""

import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

fused = oriel.kernel(pathlib.Path(__file__).with_name("fused.cu"))
COLS = 4096
CALLS = 10  # in one program, each with what comes out of the one before
ROUNDS = 21  # of each, in turn


def together(x, bias):
    out = jax.ShapeDtypeStruct((x.shape[0] // oriel.size(), x.shape[1]), x.dtype)
    return fused(x, bias, out=out, axis_name="x")


def apart(x, bias):
    return jnp.maximum(oriel.reduce_scatter(x, "x", tiled=True) + bias, 0)


def arguments(mesh, rows, cols):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(oriel.size() * rows, cols)).astype(np.float32)
    bias = rng.normal(size=cols).astype(np.float32)
    return tuple(
        jax.make_array_from_callback(v.shape, NamedSharding(mesh, spec), lambda i, v=v: v[i])
        for v, spec in ((values, P("x")), (bias, P()))
    )


def program(mesh, function):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x")))


def compare(mesh, rows, cols):
    """Whether both give the same bits."""
    x, bias = arguments(mesh, rows, cols)
    results = [
        np.asarray(program(mesh, function)(x, bias).addressable_data(0))
        for function in (together, apart)
    ]
    return np.array_equal(*results)


def chained(function):
    def calls(x, bias):
        bias = jax.lax.pcast(bias, "x", to="varying")
        for _ in range(CALLS):
            y = lax.optimization_barrier(function(x, bias))  # all of it, for what would follow
            bias = y[0]
        return y

    return calls


def bench(mesh, mebibytes):
    """Microseconds of one call, in one kernel and one after the other, of each turn."""
    rows = int(mebibytes * (1 << 20)) // (4 * COLS) // oriel.size() * oriel.size()
    x, bias = arguments(mesh, rows, COLS)
    ways = [program(mesh, chained(function)) for function in (together, apart)]
    meet = jax.jit(
        jax.shard_map(
            lambda v: oriel.barrier(v, "x"),
            mesh=mesh,
            in_specs=P("x"),
            out_specs=P("x"),
            check_vma=False,
        )
    )
    tokens, _ = arguments(mesh, 1, 1)
    samples = [[], []]
    for turn in range(ROUNDS + 2):
        for way, times in zip(ways, samples):
            jax.block_until_ready(meet(tokens))
            begun = time.perf_counter()
            jax.block_until_ready(way(x, bias))
            if turn >= 2:
                times.append((time.perf_counter() - begun) / CALLS * 1e6)
    return samples


def main(words):
    oriel.init()
    mesh = Mesh(np.array(jax.devices()), ("x",))
    who = f"[proc {oriel.process_id()}/{oriel.num_processes()}]"
    if words[:1] == ["--bench"]:
        for mebibytes in map(float, words[1:] or ("1", "4", "16", "64")):
            samples = bench(mesh, mebibytes)
            one, two = np.median(samples, axis=1)
            print(
                f"{who} {mebibytes:g} MiB: in one kernel {one:.0f} us, one after the other "
                f"{two:.0f} us, {np.median(np.divide(*samples)):.2f} times",
                flush=True,
            )
    else:
        rows, cols = [*map(int, words), *(64, COLS)[len(words) :]]
        rows = rows // oriel.size() * oriel.size()
        print(
            f"{who} {rows} x {cols}: in one kernel as one after the other, "
            f"ALL_OK={compare(mesh, rows, cols)}"
        )
    oriel.finalize()


if __name__ == "__main__":
    main(sys.argv[1:])
