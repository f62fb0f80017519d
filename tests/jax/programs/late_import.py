"""JAX's devices exist before oriel is imported: late_import.py DEVICES"""

import os
import sys

import jax

os.cpu_count = lambda: 4  # as many threads as the client would have on 4 cores
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
jax.devices()

import oriel  # noqa: E402

try:
    oriel.init()
    print("accepted")
except oriel.OrielError as error:
    print(f"refused: {error}")
