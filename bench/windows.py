#!/usr/bin/env python3
"""Operands and results in windows beside plain arrays, inside jit, between processes:

    oriel run -n 2 -- python3 bench/windows.py [--sizes 64K,1M,16M] [--json out.json] [--strict]

An all_reduce and a kernel (each rank adds up a slice, which it stores on all) of float32, on plain
arrays; on a window; and on a window with the result in another (into=). Method as in bench/tree.py:
all in turn in one run, in an order that changes and is the same in all processes, after a meeting
outside the clock; a repetition takes as long as its slowest process; medians are compared. What JAX
takes to be given a window is in its times."""

import argparse
import json
import pathlib
import random
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from oriel import _lib, _world

KERNEL = pathlib.Path(__file__).resolve().parents[1] / "examples/07_my_all_reduce/my_all_reduce.cu"
# (call, bytes from which on: plain's time over the window's, at least)
BARS = {("kernel", 1 << 20): 1.5, ("all_reduce", 16 << 20): 1.2, ("all_reduce", 0): 1.0}


def size_of(text):
    scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper())
    return int(text[:-1]) * scale if scale else int(text)


def programs(mesh):
    """{(call, where): the function}; `where` says what is in a window."""
    two_shot = oriel.kernel(KERNEL).two_shot
    calls = {
        "all_reduce": lambda x, **more: oriel.all_reduce(x, "x", **more),
        "kernel": lambda x, **more: two_shot(x, axis_name="x", **more),
    }

    def mapped(function, n):
        specs = (P("x"),) * n
        return jax.jit(
            jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=P("x"), check_vma=False)
        )

    found = {}
    for name, call in calls.items():
        found[name, "plain"] = mapped(call, 1)
        found[name, "operand"] = mapped(call, 1)
        found[name, "both"] = mapped(lambda x, w, call=call: call(x, into=w), 2)
    return found


def meet():
    for _ in range(2):
        _lib.call("oriel_comm_barrier", _world.current().comm)


def measure(mesh, size, repetitions):
    """{(call, where): median seconds of the slowest process}"""
    count = size // 4
    w = oriel.window((count,), jnp.float32, mesh, "x")
    out = oriel.window((count,), jnp.float32, mesh, "x")
    w.write(np.ones(count, np.float32))
    plain = jax.make_array_from_callback(
        (count * mesh.size,), NamedSharding(mesh, P("x")), lambda i: np.ones(count, np.float32)
    )
    operands = {"plain": (plain,), "operand": (w,), "both": (w, out)}
    found = programs(mesh)
    order, times = list(found), {key: [] for key in found}
    for key in order:
        jax.block_until_ready(found[key](*operands[key[1]]))
    assert (out.read() == mesh.size).all()
    shuffle = random.Random(size).shuffle
    for _ in range(repetitions):
        shuffle(order)
        for key in order:
            meet()
            begun = time.perf_counter()
            result = jax.block_until_ready(found[key](*operands[key[1]]))
            times[key].append(time.perf_counter() - begun)
            del result
    slowest = jax.jit(lambda seconds: oriel.all_reduce(seconds, op="max", tag="slowest"))
    rows = {key: np.median(np.asarray(slowest(np.float32(t)))) for key, t in times.items()}
    w.free()
    out.free()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sizes", default="64K,1M,16M", help="bytes of an operand")
    parser.add_argument("--repetitions", type=int, help="else 300 or fewer, by size")
    parser.add_argument("--json", help="a file for all figures")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bar is missed")
    given = parser.parse_args()
    oriel.init()
    mesh = Mesh(jax.devices(), "x")
    rows, missed = [], 0
    for size in map(size_of, given.sizes.split(",")):
        repetitions = given.repetitions or max(40, min(300, (256 << 20) // size))
        found = measure(mesh, size, repetitions)
        for name in dict.fromkeys(name for name, _ in found):
            plain, operand, both = (found[name, where] for where in ("plain", "operand", "both"))
            bars = [least for (call, at), least in BARS.items() if call == name and size >= at]
            least = max(bars, default=None)
            best = plain / min(operand, both)
            missed += least is not None and best < least
            row = {"call": name, "bytes": size, "plain_us": 1e6 * plain}
            row |= {"operand_us": 1e6 * operand, "both_us": 1e6 * both, "least": least}
            rows.append(
                {key: float(v) if isinstance(v, np.floating) else v for key, v in row.items()}
            )
            if oriel.rank() == 0:
                told = f"{1e6 * plain:9.1f} us plain {1e6 * operand:9.1f} operand {1e6 * both:9.1f} both"
                ratios = f"{plain / operand:5.2f} {plain / both:5.2f}"
                print(f"{name:10} {size:>9} B {told}   {ratios}  bar {least}", flush=True)
    if given.json and oriel.rank() == 0:
        found = {"ranks": oriel.size(), "commit": _lib.commit(), "rows": rows}
        pathlib.Path(given.json).write_text(json.dumps(found))
    oriel.finalize()
    if given.strict and missed:
        sys.exit(1)


main()
