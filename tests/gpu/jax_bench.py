"""What a call costs inside jit on GPUs: 100 chained calls in one program, all_reduce of
f32 and a custom call that only copies, in turn: jax_bench.py [SAMPLES]. Lines for
tests/gpu/report.py, then a table."""

import ctypes
import json
import sys
import time

import jax
import numpy as np
import oriel
from jax_common import sharded, spread, start
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


def time_of(step, x):
    began = time.perf_counter()
    jax.block_until_ready(step(x))
    return (time.perf_counter() - began) / CALLS * 1e6


def check(got, x):
    wanted = x.astype(np.float64).sum(0) * float(oriel.size()) ** (CALLS - 1)
    np.testing.assert_allclose(np.asarray(got.addressable_shards[0].data)[0], wanted, rtol=1e-4)


def measure(mesh, nbytes, samples):
    n = oriel.size()
    x = np.random.default_rng(nbytes).uniform(0.5, 1, (n, nbytes // 4)).astype(np.float32)
    array = spread(mesh, x)
    # Both begin when all are there.
    meet = sharded(mesh, lambda v: oriel.barrier(v, "x"), check_vma=False)
    token = spread(mesh, np.zeros((n, 1), np.float32))
    ways = {name: sharded(mesh, function, check_vma=False)
            for name, function in (("all_reduce", reduces), ("copy", copies))}
    check(ways["all_reduce"](array), x)
    times = {name: [] for name in ways}
    for turn in range(samples + 5):
        for name, step in ways.items():
            jax.block_until_ready(meet(token))
            took = time_of(step, array)
            if turn >= 5:
                times[name].append(round(took, 3))
    for name, values in times.items():
        print("sample " + json.dumps({"op": f"jax {name}", "ranks": n, "processes": n,
                                      "way": "jit", "bytes": nbytes, "us": values}), flush=True)
    return {name: np.median(values) for name, values in times.items()}


def main(samples):
    mesh = start(timeout=20)
    register_copy()
    lines = []
    for nbytes in SIZES:
        median = measure(mesh, nbytes, samples)
        lines.append(f"bench jax {nbytes:>10} all_reduce {median['all_reduce']:9.2f} us, "
                     f"copy {median['copy']:9.2f} us, "
                     f"{median['all_reduce'] / median['copy']:.2f} times, "
                     f"{median['all_reduce'] - median['copy']:+.2f} us")
    if oriel.rank() == 0:
        print("\n".join(lines), flush=True)
    oriel.finalize()


main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
