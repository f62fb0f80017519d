"""How long memory that from_ptr was given is kept, and by whom."""

import gc
import itertools
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from foreign import Gate, Owner, goes, is_gone, lend
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from oriel._memory import dlpack as _dlpack
from support import make_mesh

SHARING = {
    "numpy": np.asarray,
    "dlpack": np.from_dlpack,
    "shard": lambda x: x.addressable_shards[0].data,
    "put": lambda x: jax.device_put(x, x.device),
}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("names", list(itertools.combinations(SHARING, 2)))
def test_all_who_share_it_keep_it(names, order):
    """An array and two more over its memory, let go in this order."""
    x, memory, owner = lend(jax.devices()[3])
    held = {0: x, **{i + 1: SHARING[name](x) for i, name in enumerate(names)}}
    del x
    for i in order:
        assert not is_gone(owner)
        assert all(float(np.asarray(array)[1]) == memory[1] for array in held.values())
        del held[i]
    assert is_gone(owner)


def test_it_is_let_go_when_jax_is_called_next():
    """Until then XLA's references wait for a thread that may run Python."""
    plus_one = jax.jit(lambda v: v + 1)
    y = plus_one(jnp.zeros(4))
    x, _, owner = lend(jax.devices()[0])
    gc.disable()
    try:
        del x
        assert owner() is not None
        plus_one(y)
        assert owner() is None
    finally:
        gc.enable()


def test_a_running_program_keeps_it(memory_library):
    with Gate(memory_library) as gate:
        x, _, owner = lend(jax.devices()[0], (4096,))
        gate.open()
        expected = np.asarray(gate.launch(x))  # compiled
        gate.close()
        result = gate.launch(x)
        del x
        assert not is_gone(owner) and not result.is_ready()
        gate.open()
        np.testing.assert_array_equal(result, expected)
        assert goes(owner)


def test_a_program_keeps_it_past_its_results(memory_library):
    with Gate(memory_library) as gate:
        x, _, owner = lend(jax.devices()[0], (4096,))
        gate.launch(x)
        del x
        assert not is_gone(owner) and gate.passed() == [0]
        gate.open()
        gate.launch(jnp.zeros(8)).block_until_ready()
        assert gate.passed() == [2] and goes(owner)


def test_a_donated_array_keeps_it_as_long_as_the_program_reads_it(memory_library):
    with Gate(memory_library) as gate:
        x, memory, owner = lend(jax.devices()[0], (4096,))
        before = memory.copy()
        result = jax.jit(gate.launch, donate_argnums=0)(x)
        assert x.is_deleted() and not is_gone(owner)
        gate.open()
        np.testing.assert_array_equal(result, before)
        np.testing.assert_array_equal(memory, before)
        assert goes(owner)


def test_an_array_of_parts_keeps_them():
    lent = [lend(device) for device in jax.devices()[:4]]
    spread = NamedSharding(make_mesh((4,), order=range(4)), P("x"))
    x = jax.make_array_from_single_device_arrays((256,), spread, [array for array, _, _ in lent])
    owners = [owner for _, _, owner in lent]
    del lent
    part = x.addressable_shards[2].data
    assert not any(is_gone(owner) for owner in owners)
    del x
    assert [is_gone(owner) for owner in owners] == [True, True, False, True]
    assert part[1] == 1
    del part
    assert goes(owners[2])


def test_what_was_refused_is_not_kept():
    owner = Owner()
    known = weakref.ref(owner)
    with pytest.raises(ValueError, match="not a multiple"):
        oriel.from_ptr(owner.ptr + 4, 2, "float32", device=jax.devices()[0], owner=owner)
    with pytest.raises(TypeError, match="traced"):
        jax.jit(lambda: known().array(jax.devices()[0]))()
    del owner
    assert is_gone(known)


def test_threads():
    """Each makes arrays, runs programs and lets go, beside the others."""
    plus = jax.jit(lambda v: v.sum())
    owners, wrong = [], []

    def work(number):
        for turn in range(50):
            x, memory, owner = lend(jax.devices()[number])
            owners.append(owner)
            memory[...] = turn + number
            if plus(x) != 64 * (turn + number) or oriel.data_ptr(x) != memory.ctypes.data:
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(owners) == 400 and all(goes(owner) for owner in owners)


def take(owner):
    """By the door for GPUs."""
    return _dlpack.take(owner.ptr, owner.memory.shape, owner.memory.dtype, jax.devices()[0], owner)


def test_the_door_for_gpus(memory_library):
    with Gate(memory_library) as gate:
        owner = Owner((4096,))
        known = weakref.ref(owner)
        x = take(owner)
        result = gate.launch(x)
        del x, owner
        assert not is_gone(known)
        gate.open()
        assert result[1] == 1
        assert goes(known) and not _dlpack._lent


def test_a_capsule_that_nobody_takes():
    owner = Owner()
    known = weakref.ref(owner)
    memory = _dlpack._Memory(owner.ptr, (64,), owner.memory.dtype, jax.devices()[0], owner)
    capsule = memory.__dlpack__()
    del memory, owner
    assert not is_gone(known)
    del capsule
    assert is_gone(known) and not _dlpack._lent
