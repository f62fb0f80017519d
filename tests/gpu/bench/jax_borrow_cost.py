"""What a communicator costs: jax_borrow_cost.py none|xla|own [psum]. A line for
tests/gpu/report.py from rank 0: seconds of init and of the first execution, the memory of the GPU
that all processes together use then, and microseconds of an execution with one small call, and
of a large call in a chain. With psum the program has one of XLA's own collectives too. Nothing
else may run on the GPU."""

import json
import os
import subprocess
import sys
import time

WHOSE = sys.argv[1]
if WHOSE == "own":
    os.environ["ORIEL_FABRIC"] = "nccl"
else:
    os.environ["ORIEL_NCCL_COMM"] = WHOSE

import jax  # noqa: E402  (after the choice)
import numpy as np  # noqa: E402
import oriel  # noqa: E402
from jax import lax  # noqa: E402
from jax_common import nccl_refusal, own, row, sharded, spread, start  # noqa: E402

COUNT = 1 << 20  # of the first execution


def used():
    """MiB"""
    found = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return int(found.stdout.split()[0])


def timed(function):
    began = time.monotonic()
    result = function()
    return time.monotonic() - began, result


def per_execution(mesh, count, calls, executions):
    """Microseconds of a program with so many calls, one after the other."""

    def program(v):
        for _ in range(calls):
            v = oriel.all_reduce(v, "x", "max")
        return v

    x = spread(mesh, np.ones((oriel.size(), count), np.float32))
    step = sharded(mesh, program, check_vma=False)
    for _ in range(30):  # until buffers are mapped
        jax.block_until_ready(step(x))
        time.sleep(0.005)
    took, _ = timed(lambda: jax.block_until_ready([step(x) for _ in range(executions)][-1]))
    return round(took / executions * 1e6, 1)


def main(with_psum):
    if why := nccl_refusal():
        print(why, flush=True)
        sys.exit(77)
    init_s, mesh = timed(lambda: start(timeout=60))
    after_init = used()

    def program(v):
        # One after the other: side by side their kernels might not all find room.
        total = oriel.all_reduce(v, "x")
        return lax.psum(total, "x") if with_psum else total

    x = spread(mesh, np.ones((oriel.size(), COUNT), np.float32))
    step = sharded(mesh, program, check_vma=False).lower(x).compile()
    first_s, y = timed(lambda: jax.block_until_ready(step(x)))
    np.testing.assert_array_equal(own(y), oriel.size() ** (2 if with_psum else 1))
    for _ in range(100):
        y = jax.block_until_ready(step(x))
    used_mib = used()
    small_us = per_execution(mesh, 256, 1, 500)
    large_us = per_execution(mesh, 4 << 20, 20, 20) / 20
    if oriel.rank() == 0:
        print(
            "sample "
            + json.dumps(
                {
                    "op": "jax cost",
                    "ranks": oriel.size(),
                    "processes": oriel.size(),
                    "way": WHOSE,
                    "psum": with_psum,
                    "bytes": 4 * COUNT,
                    "init_s": round(init_s, 3),
                    "first_s": round(first_s, 3),
                    "init_mib": after_init,
                    "used_mib": used_mib,
                    "small_us": small_us,
                    "large_us": round(large_us, 1),
                }
            ),
            flush=True,
        )
    jax.block_until_ready(oriel.all_reduce(jax.numpy.zeros(1)))  # all stay until it is measured
    oriel.finalize()
    row("end")


main("psum" in sys.argv[2:])
