"""Memory that is not XLA's, for the tests of this folder."""

import gc
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support import make_mesh, over

ALIGNMENT = 64


def aligned(shape, dtype):
    """Zeros that begin where XLA:CPU uses them as they lie."""
    dtype = jnp.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


class Owner:
    """Some memory, and who is told when it is let go."""

    def __init__(self, shape=(64,), dtype="float32"):
        self.memory = aligned(shape, dtype)
        self.memory[...] = np.arange(self.memory.size).reshape(shape) % 2

    @property
    def ptr(self):
        return self.memory.ctypes.data

    def array(self, device):
        return oriel.from_ptr(
            self.ptr, self.memory.shape, self.memory.dtype, device=device, owner=self
        )


def lend(device, shape=(64,), dtype="float32"):
    """An array over memory; the memory; whether its owner is still there."""
    owner = Owner(shape, dtype)
    return owner.array(device), owner.memory, weakref.ref(owner)


def is_gone(owner):
    """Once nothing holds it: JAX lets go of what XLA has let go of when Python collects, if only
    the youngest."""
    gc.collect(0)
    return owner() is None


def goes(owner):
    """The same after a program, whose thread lets go a moment after its results are there."""
    deadline = time.monotonic() + 30
    while not is_gone(owner) and time.monotonic() < deadline:
        time.sleep(0.001)
    return owner() is None


class Gate:
    """A program that waits inside until it is let through, over the first devices.

    with Gate(library) as gate: ...
    """

    def __init__(self, library, devices=1):
        self.numbers = [aligned((2,), "int64") for _ in range(devices)]
        self.mesh = make_mesh((devices,), order=range(devices))
        self._spread = NamedSharding(self.mesh, P("x"))
        self._addresses = self.spread([numbers.ctypes.data for numbers in self.numbers])
        # XLA runs what is cheap where it is launched, and the launch would wait too.
        self._work = self.spread(np.ones(devices << 14))
        wait = oriel.op(library, "gate")

        def through_gate(address, work, x):
            busy = jax.lax.fori_loop(0, 60, lambda _, w: jnp.sin(w) + work.sum(), work).sum()
            zero = wait(address + (0 * busy).astype("int64"), axis_name="x")
            return x + zero.astype(x.dtype)[0]

        self._program = over(self.mesh, through_gate, P("x"), P("x"), check_vma=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Nobody is left waiting, also where a test fails."""
        self.open()
        self.launch(self.spread(np.ones(8))).block_until_ready()

    def spread(self, value):
        return jax.device_put(np.asarray(value), self._spread)

    def launch(self, x):
        """x, once the gate is open."""
        return self._program(self._addresses, self._work, x)

    def open(self):
        for numbers in self.numbers:
            numbers[0] = 1

    def close(self):
        for numbers in self.numbers:
            numbers[:] = 0

    def passed(self):
        """How often on each device."""
        return [int(numbers[1]) for numbers in self.numbers]
