"""A process is killed while the others wait for it inside a kernel."""

import os
import signal
import threading
import time

import jax
import jax.numpy as jnp
import oriel
from common import report
from kernels import KERNELS


def main():
    oriel.init(distributed=False)
    forever = oriel.kernel(KERNELS / "forever.cu")
    if oriel.process_id() == 1:

        def die():
            report(died=time.monotonic())
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Timer(0.5, die).start()  # no matter when: the loop has no end
    try:
        jax.jit(forever)(jnp.ones(1000, jnp.float32)).block_until_ready()
    except Exception as error:
        report(raised=time.monotonic(), text=str(error))
    oriel.finalize()


main()
