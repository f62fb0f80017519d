"""One process of a benchmark: python -m oriel.bench.worker PLAN

PLAN is a plan.Plan as JSON. For each size the process prints one line of JSON
on stdout: the nanoseconds of every call. Statistics are the parent's business,
so that nothing has to be exchanged here.
"""

import ctypes
import json
import os
import random
import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import oriel
from oriel import _lib
from oriel.bench.plan import OURS, Plan

_AXIS = "ranks"
_LAX = {"sum": jax.lax.psum, "mean": jax.lax.pmean, "min": jax.lax.pmin, "max": jax.lax.pmax}
_NUMPY = {
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
_WARM_UP = 5


def main(arguments):
    plan = Plan.from_json(arguments[0])
    report = _take_stdout()
    jax.config.update("jax_num_cpu_devices", plan.devices)
    jax.config.update("jax_enable_x64", True)
    oriel.init()
    mesh = Mesh(np.array(jax.devices("cpu")), (_AXIS,))
    calls = {name: _program(name, plan, mesh) for name in (OURS, *plan.peers)}
    for nbytes in plan.sizes:
        x = _place(plan, mesh, nbytes)
        for name, call in calls.items():
            _warm_up(name, call, x, plan)
        times = _measure(calls, x, plan.repetitions(nbytes), seed=nbytes)
        json.dump({"process": oriel.process_id(), "bytes": nbytes, "times": times}, report)
        print(file=report, flush=True)
    oriel.finalize()


def _take_stdout():
    """Keeps stdout for the report: libraries print on it as they like."""
    report = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    return report


# ---- what is measured ------------------------------------------------------------


def _program(name, plan, mesh):
    body = {OURS: _ours, "jax": _jax, "empty": _empty}[name](plan.op)
    # The result of the empty call is the same on all devices by decree only.
    mapped = jax.shard_map(
        body, mesh=mesh, in_specs=P(_AXIS), out_specs=P(), check_vma=name != "empty"
    )
    return jax.jit(mapped)


def _ours(op):
    return lambda x: oriel.all_reduce(x, _AXIS, op)


def _jax(op):
    return lambda x: _LAX[op](x, _AXIS)


def _empty(_op):
    handler = ctypes.cast(_lib.load().oriel_ffi_empty, ctypes.c_void_p)
    jax.ffi.register_ffi_target("oriel_empty", jax.ffi.pycapsule(handler), platform="cpu")
    return lambda x: jax.ffi.ffi_call("oriel_empty", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


# ---- data ------------------------------------------------------------------------


def _part(dtype, first, count, rank):
    """A rank's elements [first, first + count). Sums of them are exact in every
    dtype, and a period of five shows a chunk that landed in the wrong place."""
    return ((np.arange(first, first + count) % 5) + 1 + rank % 2).astype(dtype)


def _place(plan, mesh, nbytes):
    dtype = jax.numpy.dtype(plan.dtype)
    count = nbytes // dtype.itemsize

    def part(index):
        return _part(dtype, 0, count, (index[0].start or 0) // count)

    x = jax.make_array_from_callback(
        (count * mesh.size,), NamedSharding(mesh, P(_AXIS)), part
    )
    return jax.block_until_ready(x)


def _expected(plan, count, ranks):
    wide = np.int64 if np.issubdtype(np.dtype(plan.dtype), np.integer) else np.float64
    ...


def _warm_up(name, call, x, plan):
    for _ in range(_WARM_UP):
        result = jax.block_until_ready(call(x))


def _measure(calls, x, repetitions, seed):
    """Every repetition calls each program once, in an order that changes from
    one to the next and is the same in all processes."""
    order = list(calls)
    shuffle = random.Random(seed).shuffle
    times = {name: [] for name in order}
    clock = time.perf_counter_ns
    for _ in range(repetitions):
        shuffle(order)
        for name in order:
            call = calls[name]
            start = clock()
            result = jax.block_until_ready(call(x))
            times[name].append(clock() - start)
            del result  # outside the clock: unmapping a large result takes a while
    return times


if __name__ == "__main__":
    main(sys.argv[1:])
