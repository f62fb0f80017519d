"""Memory of one process, and a device of another."""

import jax
import numpy as np
import oriel
from common import report

oriel.init()
memory = np.zeros(32, np.float32)
memory = memory[-memory.ctypes.data % 64 // 4 :][:4]
memory[:] = oriel.process_id() + 1
(device,) = jax.local_devices()
x = oriel.from_ptr(memory.ctypes.data, 4, "float32", device=device, owner=memory)
(other,) = set(jax.devices()) - {device}
try:
    oriel.from_ptr(memory.ctypes.data, 4, "float32", device=other, owner=memory)
    error = ""
except ValueError as refused:
    error = str(refused)
report(same=oriel.data_ptr(x) == memory.ctypes.data, values=x.tolist(), error=error)
oriel.finalize()
