"""A process kills itself in a loop of operations; the others say what they saw.

die.py VICTIM STEP MODE [OPERATION]      MODE: global (jax.distributed) or local"""

import os
import random
import signal
import sys
import time

import jax
import jax.numpy as jnp
import oriel
from common import report

COUNT = 1200  # elements, a part of them for each rank


def make_call(operation):
    """The operation of this name, and what it is called with. Numbers that differ between
    ranks are operands: the program is the same on all."""
    n, x = oriel.size(), jnp.ones(COUNT, jnp.float32)
    sizes = jnp.full(n, COUNT // n)
    ragged = [0 * x, jnp.arange(n) * sizes, sizes, oriel.rank() * sizes, sizes]
    functions = {
        "reduce_scatter": lambda x: oriel.reduce_scatter(x, tiled=True),
        "all_to_all": lambda x: oriel.all_to_all(x, None, 0, 0, tiled=True),
        "permute": lambda x: oriel.permute(x, None, [(i, (i + 1) % n) for i in range(n)]),
        "ragged_all_to_all": lambda *a: oriel.ragged_all_to_all(*a, axis_name=None),
    }
    function = jax.jit(functions.get(operation) or getattr(oriel, operation))
    return function, [x, *ragged] if operation == "ragged_all_to_all" else [x]


def main():
    victim, step, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    oriel.init(distributed=False if mode == "local" else None)
    operation, operands = make_call(sys.argv[4] if len(sys.argv) > 4 else "all_reduce")
    operation(*operands).block_until_ready()
    try:
        for i in range(1_000_000):
            if i == step and oriel.process_id() == victim:
                time.sleep(random.random() * 0.01)  # a random moment
                report(died=time.monotonic())
                os.kill(os.getpid(), signal.SIGKILL)
            operation(*operands).block_until_ready()
    except Exception as error:
        report(raised=time.monotonic(), text=str(error), rank=oriel.rank(), pid=os.getpid())
    try:
        oriel.check()
        report(check=None)
    except oriel.OrielError as error:
        report(check=str(error), status=error.status.name)
    oriel.finalize()


main()
