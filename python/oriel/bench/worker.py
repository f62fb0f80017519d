"""One process of a benchmark: python -m oriel.bench.worker PLAN

PLAN is a plan.Plan as JSON. For each size the process prints one line of JSON
on stdout: the nanoseconds of every call. Statistics are the parent's business,
so that nothing has to be exchanged here.
"""

import ctypes
import json
import os
import random
import signal
import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import oriel
from oriel import _lib, _world
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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C: the parent speaks
    plan = Plan.from_json(arguments[0])
    report = _take_stdout()
    jax.config.update("jax_num_cpu_devices", plan.devices)
    jax.config.update("jax_enable_x64", plan.dtype in ("f64", "s64", "u64", "c128"))
    oriel.init()
    if oriel.size() != plan.ranks:
        sys.exit(f"oriel bench: {plan.ranks} devices were asked for, JAX has {oriel.size()}")
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


def _operand(dtype, count, rank):
    """A rank's elements. Their sums are exact in every dtype, and a period of
    five shows a chunk that landed in the wrong place."""
    return (np.arange(count) % 5 + rank % 2 + 1).astype(dtype)


def _wide(plan):
    """A type in which any result of `plan` can be compared."""
    kind = np.dtype(plan.numpy_dtype).kind if plan.dtype != "bf16" else "f"
    return {"i": np.int64, "u": np.int64, "f": np.float64, "c": np.complex128}[kind]


def _expected(plan, count):
    parts = [_operand(_wide(plan), count, rank) for rank in range(plan.ranks)]
    total = _NUMPY[plan.op].reduce(parts)
    if plan.op == "mean":
        return total / plan.ranks
    return total.astype(jax.numpy.dtype(plan.numpy_dtype)).astype(_wide(plan))


def _place(plan, mesh, nbytes):
    dtype = jax.numpy.dtype(plan.numpy_dtype)
    count = nbytes // dtype.itemsize
    x = jax.make_array_from_callback(
        (count * mesh.size,),
        NamedSharding(mesh, P(_AXIS)),
        lambda index: _operand(dtype, count, (index[0].start or 0) // count),
    )
    return jax.block_until_ready(x)


def _warm_up(name, call, x, plan):
    """Compiles, runs a few times, and compares the last result."""
    for _ in range(_WARM_UP):
        result = jax.block_until_ready(call(x))
    if name == "empty":
        return
    expected = _expected(plan, x.size // plan.ranks)
    for shard in result.addressable_shards:
        got = np.asarray(shard.data).astype(expected.dtype)
        # The last bit of a mean or of a long product may differ.
        if not np.allclose(got, expected, rtol=1e-2):
            wrong = int(np.argmax(~np.isclose(got, expected, rtol=1e-2)))
            sys.exit(
                f"oriel bench: {name} is wrong at {x.nbytes // plan.ranks} bytes: element {wrong} "
                f"on {shard.device} is {got[wrong]}, not {expected[wrong]}"
            )


# ---- time ------------------------------------------------------------------------


def _meet():
    """Lets all processes start together: the first barrier may have to wake one,
    the second then finds all of them awake."""
    for _ in range(2):
        _lib.call("oriel_comm_barrier", _world.current().comm)


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
            _meet()
            start = clock()
            result = jax.block_until_ready(call(x))
            times[name].append(clock() - start)
            del result  # outside the clock: unmapping a large result takes a while
    return times


if __name__ == "__main__":
    main(sys.argv[1:])
