"""The all-reduce of example 07 against the built-in one inside jit: 100 chained calls in one
program, in turn: jax_kernel_bench.py [SAMPLES]. Lines for tests/gpu/report.py, then a table."""

import json
import pathlib
import sys
import time

import jax
import numpy as np
import oriel
from jax_common import own, sharded, spread, start

CALLS = 100
SIZES = [size << 20 for size in (1, 16, 64, 256)]
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/07_my_all_reduce/my_all_reduce.cu"


def chained(function):
    def calls(v):
        v = v[0]
        for _ in range(CALLS):
            v = function(v)
        return v[None]

    return calls


def measure(mesh, nbytes, samples, functions):
    n = oriel.size()
    x = np.random.default_rng(nbytes).uniform(0.5, 1, (n, nbytes // 4)).astype(np.float32)
    array = spread(mesh, x)
    meet = sharded(mesh, lambda v: oriel.barrier(v, "x"), check_vma=False)
    token = spread(mesh, np.zeros((n, 1), np.float32))
    ways = {name: sharded(mesh, chained(f), check_vma=False) for name, f in functions.items()}
    sums = [own(step(array)) for step in ways.values()]
    for other in sums[1:]:
        np.testing.assert_array_equal(sums[0], other)
    times = {name: [] for name in ways}
    for turn in range(samples + 5):
        for name, step in ways.items():
            jax.block_until_ready(meet(token))
            began = time.perf_counter()
            jax.block_until_ready(step(array))
            took = (time.perf_counter() - began) / CALLS * 1e6
            if turn >= 5:
                times[name].append(round(took, 3))
    for name, values in times.items():
        if oriel.rank() == 0:
            print("sample " + json.dumps({"op": f"jax {name}", "ranks": n, "processes": n,
                                          "way": "jit", "bytes": nbytes, "us": values}), flush=True)
    return {name: np.median(values) for name, values in times.items()}


def main(samples):
    mesh = start(timeout=20)
    two_shot = oriel.kernel(EXAMPLE).two_shot
    functions = {"two_shot": lambda v: two_shot(v, axis_name="x"),
                 "two_shot beside": lambda v: oriel.all_reduce(v, "x")}
    if len(sys.argv) > 2:
        more = oriel.kernel(sys.argv[2])
        for name in sys.argv[3:]:
            functions[name] = lambda v, f=getattr(more, name): f(v, axis_name="x")
    for nbytes in SIZES:
        median = measure(mesh, nbytes, samples, functions)
        if oriel.rank() == 0:
            builtin = median["two_shot beside"]
            print(f"bench kernel {nbytes:>10} built-in {builtin:8.2f} us, " + ", ".join(
                f"{name} {us:8.2f} ({us / builtin:.3f})" for name, us in median.items()), flush=True)
    oriel.finalize()


main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
