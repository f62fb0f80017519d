"""One process of a benchmark: python -m oriel.bench.worker PLAN

PLAN is a plan.Plan as JSON. For each size the process prints one line of JSON
on stdout: the nanoseconds of every call. Statistics are the parent's business,
so that nothing has to be exchanged here.
"""

import json
import os
import random
import signal
import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh

import oriel
from oriel import _lib, _world
from oriel.bench import calls
from oriel.bench.plan import OURS, Plan

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
    mesh = Mesh(np.array(jax.devices("cpu")), (calls.AXIS,))
    for nbytes in plan.sizes:
        x = calls.place(plan, mesh, nbytes)
        programs = {name: calls.program(name, plan, mesh, nbytes) for name in (OURS, *plan.peers)}
        for name, program in programs.items():
            _warm_up(name, program, x, plan, nbytes)
        times = _measure(programs, x, plan.repetitions(nbytes), seed=nbytes)
        json.dump({"process": oriel.process_id(), "bytes": nbytes, "times": times}, report)
        print(file=report, flush=True)
    oriel.finalize()


def _take_stdout():
    """Keeps stdout for the report: libraries print on it as they like."""
    report = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    return report


def _warm_up(name, program, x, plan, nbytes):
    """Compiles, runs a few times, and compares the last result."""
    for _ in range(_WARM_UP):
        result = jax.block_until_ready(program(x))
    if name == "empty" or (plan.operation, name) == ("barrier", "jax"):
        return  # what they return is not what the operation returns
    for shard in result.addressable_shards:
        rank = jax.devices("cpu").index(shard.device)
        expected = calls.expected(plan, nbytes, rank)
        got = np.asarray(shard.data).astype(expected.dtype)
        # The last bit of a mean or of a long product may differ.
        if not np.allclose(got, expected, rtol=1e-2):
            wrong = int(np.argmax(~np.isclose(got, expected, rtol=1e-2)))
            sys.exit(
                f"oriel bench: {name} is wrong at {nbytes} bytes: element {wrong} "
                f"on {shard.device} is {got[wrong]}, not {expected[wrong]}"
            )


# ---- time ------------------------------------------------------------------------


def _meet():
    """Lets all processes start together: the first barrier may have to wake one,
    the second then finds all of them awake."""
    for _ in range(2):
        _lib.call("oriel_comm_barrier", _world.current().comm)


def _measure(programs, x, repetitions, seed):
    """Every repetition calls each program once, in an order that changes from
    one to the next and is the same in all processes."""
    order = list(programs)
    shuffle = random.Random(seed).shuffle
    times = {name: [] for name in order}
    clock = time.perf_counter_ns
    for _ in range(repetitions):
        shuffle(order)
        for name in order:
            program = programs[name]
            _meet()
            start = clock()
            result = jax.block_until_ready(program(x))
            times[name].append(clock() - start)
            del result  # outside the clock: unmapping a large result takes a while
    return times


if __name__ == "__main__":
    main(sys.argv[1:])
