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


def main():
    victim, step, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    oriel.init(distributed=False if mode == "local" else None)
    operation = jax.jit(getattr(oriel, sys.argv[4] if len(sys.argv) > 4 else "all_reduce"))
    x = jnp.ones(1000, jnp.float32)
    operation(x).block_until_ready()
    try:
        for i in range(1_000_000):
            if i == step and oriel.process_id() == victim:
                time.sleep(random.random() * 0.01)  # a random moment
                report(died=time.monotonic())
                os.kill(os.getpid(), signal.SIGKILL)
            operation(x).block_until_ready()
    except Exception as error:
        report(raised=time.monotonic(), text=str(error), rank=oriel.rank(), pid=os.getpid())
    try:
        oriel.check()
        report(check=None)
    except oriel.OrielError as error:
        report(check=str(error), status=error.status.name)
    oriel.finalize()


main()
