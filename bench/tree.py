#!/usr/bin/env python3
"""A tree of arrays as one all_reduce, beside the arrays one by one, lax.psum of the tree, and one
flat array of as many bytes:

    oriel run -n 2 -- python3 bench/tree.py [--arrays 100] [--bytes 4096] [--strict]

Method and columns are those of `oriel bench` at the level of JAX: all are called in turn in one
run, in an order that changes and is the same in all processes, after a meeting outside the clock;
a repetition takes as long as its slowest process; medians are compared. What a call costs shows in
a program of a few calls, each on the results of the one before; in a program of one call JAX's own
time for 100 operands and results is in it, on all sides but that of the flat array. What is empty
shows that: a custom call that does nothing, with as many operands and results."""

import argparse
import ctypes
import random
import sys
import time

import jax
import numpy as np
import oriel
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from oriel import _lib, _world

AXIS = "ranks"


def empty(tree):
    """A call that does nothing, with the same operands and results."""
    kinds = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in tree]
    return jax.ffi.ffi_call("oriel_empty", kinds)(*tree)


LAYOUTS = {
    "tree": lambda tree: oriel.all_reduce(tree, AXIS),
    "one by one": lambda tree: [oriel.all_reduce(x, AXIS) for x in tree],
    "lax.psum": lambda tree: lax.psum(tree, AXIS),
    "flat": lambda tree: oriel.all_reduce(tree, AXIS),  # a tree of one
    "empty": empty,
    "empty, flat": empty,
}
# (whose time, in times of whose, at least, at most): what the figures must be.
BARS = [
    ("one by one", "tree", 3.0, None),
    ("lax.psum", "tree", 1.0, None),
    ("tree", "flat", None, 1.3),
]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--arrays", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=4096, help="of each array")
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--calls", type=int, default=10, help="of the longer program")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bar is missed")
    return parser.parse_args(arguments)


def place(mesh, count):
    """Ones on each device: sums of them are exact for as long as a program goes on."""
    sharding = NamedSharding(mesh, P(AXIS))
    shape = (count * mesh.size,)
    return jax.make_array_from_callback(shape, sharding, lambda i: np.ones(count, np.float32))


def program(mesh, layout, calls):
    def function(tree):
        for _ in range(calls):
            tree = LAYOUTS[layout](tree)
        return tree

    mapped = jax.shard_map(function, mesh=mesh, in_specs=P(AXIS), out_specs=P(), check_vma=False)
    return jax.jit(mapped)


def check(layout, result, calls):
    expected = np.float32(oriel.size()) ** calls
    for array in result:
        if not (np.asarray(array.addressable_shards[0].data) == expected).all():
            sys.exit(f"{layout}: wrong after {calls} calls")


def meet():
    for _ in range(2):
        _lib.call("oriel_comm_barrier", _world.current().comm)


def measure(programs, operands, repetitions):
    """Seconds of each repetition, of the slowest process."""
    order = list(programs)
    shuffle = random.Random(repetitions).shuffle
    times = {layout: [] for layout in order}
    for _ in range(repetitions):
        shuffle(order)
        for layout in order:
            meet()
            begun = time.perf_counter()
            result = jax.block_until_ready(programs[layout](operands[layout]))
            times[layout].append(time.perf_counter() - begun)
            del result
    slowest = jax.jit(lambda seconds: oriel.all_reduce(seconds, op="max"))
    return {layout: np.asarray(slowest(np.float32(t))) for layout, t in times.items()}


def compare(calls, times):
    """Prints a table and the bars; returns how many are missed."""
    medians = {layout: np.median(t) / calls for layout, t in times.items()}
    print(f"{calls} call{'s'[: calls > 1]} in a program, for each call:")
    for layout, median in medians.items():
        quartiles = np.percentile(times[layout] / calls, [25, 75])
        spread = (quartiles[1] - quartiles[0]) / median
        print(f"  {layout:12} {median * 1e6:9.1f} us   spread {spread:4.0%}")
    missed = 0
    for whose, of, least, most in BARS:
        ratio = medians[whose] / medians[of]
        met = ratio >= least if most is None else ratio <= most
        bar = f"at least {least}" if most is None else f"at most {most}"
        missed += not met
        print(f"  {whose} / {of}: {ratio:.2f}, {bar}: {'met' if met else 'MISSED'}")
    return missed


def main(arguments):
    options = parse(arguments)
    jax.config.update("jax_num_cpu_devices", 1)
    oriel.init()
    platform = "CUDA" if jax.devices()[0].platform == "gpu" else "cpu"
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    count = options.bytes // 4
    tree = [place(mesh, count) for _ in range(options.arrays)]
    flat = [place(mesh, options.arrays * count)]
    operands = {layout: flat if "flat" in layout else tree for layout in LAYOUTS}
    handler = ctypes.cast(_lib.load().oriel_ffi_empty, ctypes.c_void_p)
    jax.ffi.register_ffi_target("oriel_empty", jax.ffi.pycapsule(handler), platform=platform)
    missed = 0
    for calls in (options.calls, 1):
        programs = {layout: program(mesh, layout, calls) for layout in LAYOUTS}
        for layout, run in programs.items():
            for _ in range(5):
                result = run(operands[layout])
            if "empty" not in layout:
                check(layout, result, calls)
        times = measure(programs, operands, options.repetitions)
        if oriel.process_id() == 0:
            missed += compare(calls, times)
    oriel.finalize()
    return 1 if missed and options.strict else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
