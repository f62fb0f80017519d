"""What a communicator costs: jax_borrow_cost.py [psum]. One JSON row from rank 0: seconds of
init, of the first execution and of a later one, and the memory of the GPU that all processes
together use then. With psum the program has one of XLA's own collectives too. Run it with
ORIEL_NCCL_COMM=none, with xla, and with ORIEL_FABRIC=nccl, on a GPU that does nothing else."""

import json
import os
import subprocess
import sys
import time

import jax
import numpy as np
import oriel
from jax import lax
from jax_common import own, row, sharded, spread, start

COUNT = 1 << 20


def used():
    """MiB"""
    found = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, check=True, timeout=20)
    return int(found.stdout.split()[0])


def timed(function):
    began = time.monotonic()
    result = function()
    return time.monotonic() - began, result


def main(with_psum):
    init_s, mesh = timed(lambda: start(timeout=60))
    after_init = used()

    def program(v):
        total = oriel.all_reduce(v, "x")
        return total + lax.psum(v, "x") if with_psum else total

    host = np.ones((oriel.size(), COUNT), np.float32)
    x = spread(mesh, host)
    step = sharded(mesh, program, check_vma=False).lower(x).compile()
    first_s, y = timed(lambda: jax.block_until_ready(step(x)))
    np.testing.assert_array_equal(own(y), (2 if with_psum else 1) * oriel.size())
    for _ in range(200):
        y = jax.block_until_ready(step(x))
    later_s, _ = timed(lambda: jax.block_until_ready([step(x) for _ in range(100)]))
    jax.block_until_ready(step(x))
    if oriel.rank() == 0:
        print("cost " + json.dumps({
            "communicator": os.environ.get("ORIEL_NCCL_COMM", "auto"),
            "fabric": os.environ.get("ORIEL_FABRIC", "auto"), "psum": with_psum,
            "ranks": oriel.size(), "bytes": 4 * COUNT, "init_s": round(init_s, 3),
            "first_s": round(first_s, 3), "later_us": round(later_s * 1e4, 1),
            "init_mib": after_init, "used_mib": used()}), flush=True)
    jax.block_until_ready(oriel.all_reduce(jax.numpy.zeros(1)))  # all stay until it is measured
    oriel.finalize()
    row("end")


main("psum" in sys.argv[1:])
