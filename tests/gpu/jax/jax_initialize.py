"""What initialize costs the thread that starts a program: under 5 us per execution once
warm, and no more than 100 us while a peer sleeps. Lines for tests/gpu/report.py."""

import ctypes
import json
import statistics
import time

import jax
import numpy as np
import oriel
from jax_common import row, sharded, spread, start, wait_for
from oriel import _lib

SAMPLES = 200
WARM_US, LATE_US, SLEEP_S = 5.0, 100.0, 5.0


class Cost(ctypes.Structure):
    _fields_ = [("calls", ctypes.c_uint64), ("seconds", ctypes.c_double),
                ("longest", ctypes.c_double)]  # fmt: skip


def costs():
    """(of initialize, of execute), since the last question"""
    both = Cost(), Cost()
    _lib.load().oriel_ffi_cuda_costs(*map(ctypes.byref, both))
    return both


def settle(step, x):
    """Until buffers are mapped and addresses seen."""
    for _ in range(1000):
        jax.block_until_ready(step(x))
    costs()


def warm(name, step, x):
    settle(step, x)
    took = {"initialize": [], "execute": []}
    for _ in range(SAMPLES):
        jax.block_until_ready(step(x))
        for stage, cost in zip(took, costs(), strict=True):
            if cost.calls:
                took[stage].append(round(cost.seconds * 1e6, 3))
    assert len(took["initialize"]) == SAMPLES
    for stage, values in took.items():
        if not values:  # a captured graph needs none
            continue
        print(
            "sample "
            + json.dumps(
                {
                    "op": f"jax {stage} {name}",
                    "ranks": oriel.size(),
                    "processes": oriel.size(),
                    "way": "warm",
                    "bytes": x.nbytes // oriel.size(),
                    "us": values,
                }
            ),
            flush=True,
        )
        print(
            f"cost rank {oriel.rank()} {stage} of {name}, {x.nbytes // oriel.size()} bytes: "
            f"median {statistics.median(values):.2f} us, most {max(values):.2f} us, "
            f"{len(values)} executions",
            flush=True,
        )
    figure = statistics.median(took["initialize"])
    assert figure < WARM_US, f"initialize of {name} takes {figure:.2f} us"
    row(f"warm {name} {x.nbytes // oriel.size()}")


def late(step, x):
    """The last rank sleeps before it calls; the others' initialize must not notice."""
    settle(step, x)
    began = time.monotonic()
    if oriel.rank() == oriel.size() - 1:
        time.sleep(SLEEP_S)
        jax.block_until_ready(step(x))
        row("the sleeper")
        return
    y = step(x)
    returned = time.monotonic() - began
    seen = []

    def has_come():
        seen.append(costs()[0])
        return sum(cost.calls for cost in seen) == 1

    wait_for(has_come, 2.0)
    heard = time.monotonic() - began
    longest = max(cost.longest for cost in seen) * 1e6
    jax.block_until_ready(y)
    waited = time.monotonic() - began
    print(
        f"cost rank {oriel.rank()} while a peer sleeps: initialize {longest:.2f} us, the call "
        f"returned after {returned * 1e3:.2f} ms, initialize was over after "
        f"{heard * 1e3:.2f} ms, the result was there after {waited:.2f} s",
        flush=True,
    )
    assert heard < 2.0 and waited > SLEEP_S - 1.0
    assert longest < LATE_US, f"initialize takes {longest:.2f} us while a peer sleeps"
    row("while a peer sleeps")


def main():
    mesh = start(timeout=30)
    n = oriel.size()
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"), check_vma=False)
    for count in (256, 256 << 10, 4 << 20):
        x = spread(mesh, np.ones((n, count), np.float32))
        warm("all_reduce", step, x)
    late(step, x)
    oriel.finalize()


main()
