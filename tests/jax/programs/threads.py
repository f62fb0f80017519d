"""Two threads, each with a group of its own: threads.py ITERATIONS"""

import sys
import threading

import jax
import numpy as np
import oriel
from common import report, sharded
from jax.sharding import AxisType, Mesh

jax.config.update("jax_num_cpu_devices", 8)


def work(devices, iterations, failures):
    try:
        mesh = Mesh(np.array(devices), ("x",), axis_types=(AxisType.Auto,))
        step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"))
        x = np.arange(8.0, dtype=np.float32).reshape(4, 2)
        for _ in range(iterations):
            np.testing.assert_array_equal(step(x)[0], x.sum(0))
    except BaseException as error:
        failures.append(repr(error))
        raise


def main():
    oriel.init()
    devices = jax.devices()
    failures = []
    threads = [
        threading.Thread(target=work, args=(part, int(sys.argv[1]), failures))
        for part in (devices[:4], devices[4:])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    report(ok=True)


main()
