"""What a call costs inside jit on GPUs: 100 chained calls in one program, all_reduce of
f32, a custom call that only copies and, with NCCL 2.30 preloaded, `lax.psum`, in turn:
jax_bench.py [SAMPLES [MOST FABRIC]], up to MOST bytes, on a fabric that is not the default.
Lines for tests/gpu/report.py, and of a table."""

import ctypes
import json
import re
import sys
import time

import jax
import numpy as np
import oriel
from jax import lax
from jax_common import nccl_refusal, own, sharded, spread, start
from oriel import _lib

CALLS = 100
SIZES = [1 << shift for shift in (10, 12, 14, 16, 18, 20, 22, 24, 26, 28)]


def register_copy():
    handler = ctypes.cast(_lib.load().oriel_ffi_cuda_copy, ctypes.c_void_p)
    jax.ffi.register_ffi_target("oriel_copy", jax.ffi.pycapsule(handler), platform="CUDA")


def reduces(v):
    for _ in range(CALLS):
        v = oriel.all_reduce(v, "x")
    return v


def copies(v):
    call = jax.ffi.ffi_call("oriel_copy", jax.ShapeDtypeStruct(v.shape, v.dtype))
    for _ in range(CALLS):
        v = call(v)
    return v


def psums(v):
    for _ in range(CALLS):
        v = lax.psum(v, "x")
    return v


def compile_psums(step, x):
    """XLA may fold a sum of what is the same everywhere: then there is nothing to compare."""
    compiled = step.lower(x).compile()
    found = len(re.findall(r" all-reduce(?:-start)?\(", compiled.as_text()))
    assert found == CALLS, f"XLA has made {found} all-reduces of {CALLS} psums"
    return compiled


def time_of(step, x):
    began = time.perf_counter()
    jax.block_until_ready(step(x))
    return (time.perf_counter() - began) / CALLS * 1e6


def slowest(mesh, values):
    """Of all processes, for each sample: a call is over when it is over everywhere."""
    mine = np.zeros((oriel.size(), len(values)), np.float32)
    mine[oriel.rank()] = values
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x", "max"), check_vma=False)
    return [round(float(us), 3) for us in own(step(spread(mesh, mine)))[0]]


def check(got, x):
    wanted = x.astype(np.float64).sum(0) * float(oriel.size()) ** (CALLS - 1)
    np.testing.assert_allclose(own(got)[0], wanted, rtol=1e-4)


def measure(mesh, nbytes, samples, functions, fabric=""):
    n = oriel.size()
    x = np.random.default_rng(nbytes).uniform(0.5, 1, (n, nbytes // 4)).astype(np.float32)
    array = spread(mesh, x)
    # All begin when all are there.
    meet = sharded(mesh, lambda v: oriel.barrier(v, "x"), check_vma=False)
    token = spread(mesh, np.zeros((n, 1), np.float32))
    ways = {name: sharded(mesh, function, check_vma=False) for name, function in functions.items()}
    if "psum" in ways:
        ways["psum"] = compile_psums(ways["psum"], array)
    for name in (name for name in ways if name != "copy"):
        check(ways[name](array), x)
    times = {name: [] for name in ways}
    for turn in range(samples + 5):
        for name, step in ways.items():
            jax.block_until_ready(meet(token))
            took = time_of(step, array)
            if turn >= 5:
                times[name].append(took)
    times = {name: slowest(mesh, values) for name, values in times.items()}
    for name, values in times.items():
        sample = {"op": f"jax {name}", "ranks": n, "processes": n, "way": "jit",
                  "bytes": nbytes, "us": values}  # fmt: skip
        if fabric:
            sample["fabric"] = fabric
        if oriel.rank() == 0:
            print(f"sample {json.dumps(sample)}", flush=True)
    return times


def cell(values):
    """The median, and the distance of the quartiles."""
    low, middle, high = np.percentile(values, (25, 50, 75))
    return f"{middle:9.2f} us +-{(high - low) / middle / 2:4.0%}"


def line(nbytes, times, fabric):
    median = {name: np.median(values) for name, values in times.items()}
    ours = median.pop("all_reduce")
    parts = [
        f"{name} {cell(times[name])} {ours / peer:.2f} times {ours - peer:+.2f} us"
        for name, peer in median.items()
    ]
    on = f" on {fabric}" if fabric else ""
    return f"bench jax {nbytes:>9}{on} all_reduce {cell(times['all_reduce'])}; {'; '.join(parts)}"


def main(samples=20, most=SIZES[-1], fabric=""):
    mesh = start(timeout=20)
    register_copy()
    functions = {"all_reduce": reduces, "copy": copies}
    refusal = nccl_refusal()
    if refusal:
        print(f"bench jax without psum: {refusal}", flush=True)
    else:
        functions["psum"] = psums
    for nbytes in (nbytes for nbytes in SIZES if nbytes <= int(most)):
        times = measure(mesh, nbytes, int(samples), functions, fabric)
        if oriel.rank() == 0:
            print(line(nbytes, times, fabric), flush=True)
    oriel.finalize()


if __name__ == "__main__":
    main(*sys.argv[1:])
