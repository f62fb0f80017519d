"""What XLA promises of programs that are launched one after the other, on CPUs.

Nothing here is oriel's own: who hands memory from one program to the next stands on it."""

import threading

import jax
import numpy as np
import pytest
from foreign import Gate


@pytest.fixture(params=[1, 4])
def gate(request, memory_library):
    with Gate(memory_library, request.param) as gate:
        gate.open()
        gate.launch(gate.spread(np.ones(8))).block_until_ready()
        gate.close()
        yield gate


@pytest.mark.parametrize("turn", range(2))
def test_a_later_program_on_the_same_devices_waits_for_an_earlier_one(gate, turn):
    """Launched by the same thread: one device after one, several after several."""
    later = gate.spread(np.ones(8))
    plus_one = jax.jit(lambda v: v + 1)
    plus_one(later).block_until_ready()
    earlier = gate.launch(gate.spread(np.ones(8)))
    launched = plus_one(later)
    assert not earlier.is_ready() and not launched.is_ready()
    opener = threading.Thread(target=gate.open)
    opener.start()
    launched.block_until_ready()
    assert gate.passed() == [1] * len(gate.numbers)
    opener.join()
    earlier.block_until_ready()


def test_one_on_one_device_does_not_wait_for_one_on_several(memory_library):
    with Gate(memory_library, 4) as gate:
        earlier = gate.launch(gate.spread(np.ones(8)))
        jax.jit(lambda v: v + 1)(jax.device_put(np.ones(2), jax.devices()[0])).block_until_ready()
        assert gate.passed() == [0] * 4
        gate.open()
        earlier.block_until_ready()


def test_one_of_another_thread_does_not_wait(memory_library):
    with Gate(memory_library) as gate:
        earlier = gate.launch(gate.spread(np.ones(8)))
        x = jax.device_put(np.ones(2), jax.devices()[0])
        plus_one = jax.jit(lambda v: v + 1)
        thread = threading.Thread(target=lambda: plus_one(x).block_until_ready())
        thread.start()
        thread.join()
        assert gate.passed() == [0]
        gate.open()
        earlier.block_until_ready()
