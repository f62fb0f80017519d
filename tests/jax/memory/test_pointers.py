"""oriel.data_ptr and oriel.from_ptr: what is exchanged, and what is refused."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from foreign import Owner, aligned, lend
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from oriel._memory import dlpack as _dlpack
from oriel._memory import pointers as _pointers
from support import environment, make_mesh, over, run_processes

PROGRAMS = Path(__file__).resolve().parent / "programs"
DTYPES = sorted(_dlpack.DTYPES)
PACKED = ["int2", "int4", "uint2", "uint4", "float4_e2m1fn"]
DEVICES = [0, 3]


@pytest.mark.parametrize("number", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_both_ways(dtype, number):
    device = jax.devices()[number]
    owner = Owner((4, 6), dtype)
    x = owner.array(device)
    assert x.shape == (4, 6) and x.dtype == dtype and x.devices() == {device}
    assert oriel.data_ptr(x) == owner.ptr
    assert np.asarray(x).tobytes() == owner.memory.tobytes()
    assert np.asarray(x).ctypes.data == owner.ptr
    doubled = jax.jit(lambda v: jnp.concatenate([v, v]))(x)
    assert np.asarray(doubled).tobytes() == 2 * owner.memory.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_door_for_gpus_on_a_cpu(dtype):
    """The capsule is the same but for the kind of device."""
    owner = Owner((4, 6), dtype)
    x = _dlpack.take(owner.ptr, (4, 6), jnp.dtype(dtype), jax.devices()[0], owner)
    assert x.shape == (4, 6) and x.dtype == dtype and oriel.data_ptr(x) == owner.ptr
    assert np.asarray(x).tobytes() == owner.memory.tobytes()


@pytest.mark.parametrize("dtype", PACKED)
def test_packed_dtypes_are_refused_by_name(dtype):
    x = jnp.zeros(4, dtype)
    with pytest.raises(TypeError, match=f"data_ptr: nobody else knows how dtype {dtype} lies"):
        oriel.data_ptr(x)
    memory = aligned((4,), "uint8")
    with pytest.raises(TypeError, match=f"from_ptr: nobody else knows how dtype {dtype} lies"):
        oriel.from_ptr(memory.ctypes.data, 4, dtype, device=jax.devices()[0], owner=memory)


def test_shapes():
    owner = Owner((1,), "float64")
    for shape, known in [((), ()), (1, (1,)), ([1, 1], (1, 1)), (np.array([1, 1, 1]), (1, 1, 1))]:
        x = oriel.from_ptr(owner.ptr, shape, float, device=jax.devices()[0], owner=owner)
        assert x.shape == known and oriel.data_ptr(x) == owner.ptr
        x = _dlpack.take(owner.ptr, known, jnp.dtype("float64"), jax.devices()[0], owner)
        assert x.shape == known and oriel.data_ptr(x) == owner.ptr


def test_without_elements_there_is_no_memory():
    for ptr in (0, 3):
        x = oriel.from_ptr(ptr, (0, 3), "float32", device=jax.devices()[3], owner=None)
        assert x.shape == (0, 3) and x.devices() == {jax.devices()[3]}
        assert oriel.data_ptr(x) == 0


def test_writes_are_seen_by_later_programs():
    x, memory, _ = lend(jax.devices()[0])
    plus_one = jax.jit(lambda v: v + 1)
    for value in (5, 6):
        memory[...] = value
        assert plus_one(x)[7] == value + 1 and np.asarray(x)[7] == value


def test_results_are_never_the_memory():
    x, memory, _ = lend(jax.devices()[0])
    results = [
        jax.jit(lambda v: v)(x),
        jax.jit(lambda v: v, donate_argnums=0)(x.addressable_shards[0].data),
    ]
    assert memory.ctypes.data not in [oriel.data_ptr(result) for result in results]


@pytest.mark.parametrize("number", DEVICES)
@pytest.mark.parametrize("function", [lambda v: v, lambda v: 2 * v + 1, lambda v: v.at[3].set(9)])
def test_what_is_donated_is_copied(function, number):
    x, memory, _ = lend(jax.devices()[number])
    before = memory.copy()
    result = jax.jit(function, donate_argnums=0)(x)
    np.testing.assert_array_equal(result, function(jnp.asarray(before)))
    np.testing.assert_array_equal(memory, before)
    assert oriel.data_ptr(result) != memory.ctypes.data
    with pytest.raises(ValueError, match=r"x, float32\[64\], has no memory any more"):
        oriel.data_ptr(x)


def test_parts_make_one_array_without_a_copy():
    devices = jax.devices()[:4]
    owners = [Owner() for _ in devices]
    spread = NamedSharding(make_mesh((4,), order=range(4)), P("x"))
    parts = [owner.array(device) for owner, device in zip(owners, devices)]
    x = jax.make_array_from_single_device_arrays((256,), spread, parts)
    found = [oriel.data_ptr(shard.data) for shard in x.addressable_shards]
    assert found == [owner.ptr for owner in owners]


@pytest.mark.parametrize("devices", [1, 4])
def test_programs_use_it_where_it_lies(memory_library, devices):
    where = oriel.op(memory_library, "addresses")
    owners = [Owner() for _ in range(devices)]
    mesh = make_mesh((devices,), order=range(devices))
    parts = [owner.array(device) for owner, device in zip(owners, jax.devices())]
    x = jax.make_array_from_single_device_arrays(
        (64 * devices,), NamedSharding(mesh, P("x")), parts
    )
    out = jax.ShapeDtypeStruct((2,), "int64")
    seen = over(mesh, lambda v: where(v, out=out, axis_name="x"), P("x"), P("x"), check_vma=False)
    for owner, row in zip(owners, np.asarray(seen(x)).reshape(devices, 2)):
        assert list(row) == [owner.ptr, owner.ptr]


def test_dlpack_goes_on():
    x, memory, _ = lend(jax.devices()[3])
    assert np.from_dlpack(x).ctypes.data == memory.ctypes.data


def test_several_processes():
    status, output, reports = run_processes(PROGRAMS / "elsewhere.py", processes=2)
    assert status == 0, output
    for process in range(2):
        (said,) = reports[process]
        assert said["same"] and said["values"] == [process + 1.0] * 4
        other = 1 - process
        assert f"belongs to process {other}, whose memory has no addresses here" in said["error"]


NEVER = """
import importlib.abc, sys

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("torch", "cupy", "tensorflow"):
            asked.append(name)

asked = []
sys.meta_path.insert(0, Watch())
import jax
by_jax = list(asked)
import oriel
memory = jax.numpy.zeros(4)
x = oriel.from_ptr(oriel.data_ptr(memory), 4, "float32", device=jax.devices()[0], owner=memory)
assert x.tolist() == [0] * 4
assert asked == by_jax, asked
assert not {"torch", "cupy", "tensorflow"} & sys.modules.keys()
# One array of each kind is left when Python ends.
from oriel._memory import dlpack as _dlpack
y = _dlpack.take(oriel.data_ptr(memory), (4,), x.dtype, jax.devices()[0], memory)
"""


def test_it_imports_no_other_framework():
    done = subprocess.run(
        [sys.executable, "-c", NEVER], env=environment(1), capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


# ---- what is refused -----------------------------------------------------------------------


def test_what_has_no_address():
    gathered = jax.device_put(np.zeros(8), NamedSharding(make_mesh(), P("x")))
    for x, error, said in [
        (gathered, ValueError, r"8 shards in this process.*take x.addressable_shards\[i\].data"),
        (np.zeros(2), TypeError, "x is a NumPy array, whose address is x.ctypes.data"),
        ([1.0], TypeError, "x must be a jax.Array, got list"),
        (jax.random.key(0), TypeError, "PRNG keys, key<fry>.*take jax.random.key_data"),
    ]:
        with pytest.raises(error, match=said):
            oriel.data_ptr(x)
    with pytest.raises(TypeError, match=r"a value of a program that is traced, float64\[\]"):
        jax.jit(oriel.data_ptr)(jnp.zeros(()))
    with pytest.raises(jax.errors.JaxRuntimeError, match="not today"):
        oriel.data_ptr(failing())


def failing():
    def refuse():
        raise RuntimeError("not today")

    return jax.jit(lambda: jax.pure_callback(refuse, jax.ShapeDtypeStruct((), "float32")))()


def test_wrong_arguments():
    memory = aligned((64,), "uint8")
    good = {"ptr": memory.ctypes.data, "shape": (2, 2), "dtype": "int8"}
    device = jax.devices()[0]
    for wrong, error, said in [
        ({"ptr": "0x7f"}, TypeError, "ptr must be an integer, got '0x7f'"),
        ({"ptr": 64.0}, TypeError, "ptr must be an integer, got 64.0"),
        ({"ptr": True}, TypeError, "ptr must be an integer, got True"),
        ({"ptr": -64}, ValueError, "ptr must be an address of 64 bits, got -64"),
        ({"ptr": 2**64}, ValueError, f"ptr must be an address of 64 bits, got {2**64}"),
        ({"ptr": 0}, ValueError, "ptr is 0, and there are 4 bytes to be there"),
        ({"ptr": 0x7F0010}, ValueError, "ptr 0x7f0010 is not a multiple of 64"),
        ({"shape": (2, -1)}, ValueError, r"shape has a negative dimension, \(2, -1\)"),
        ({"shape": (2, 1.5)}, TypeError, r"shape must be integers, got \(2, 1.5\)"),
        ({"shape": None}, TypeError, "shape must be integers, got None"),
        ({"shape": (2**40, 2**40)}, ValueError, "bytes at ptr 0x.* reach beyond all addresses"),
        ({"dtype": "float33"}, TypeError, "dtype must be a dtype, got 'float33'"),
        ({"dtype": None}, TypeError, "dtype must be a dtype, got None"),
        ({"dtype": object}, TypeError, "nobody else knows how dtype object lies"),
        ({"dtype": ">f4"}, TypeError, "nobody else knows how dtype >f4 lies"),
        ({"dtype": jax.random.key(0).dtype}, TypeError, "dtype must be a dtype, got key<fry>"),
        ({"device": "cpu"}, TypeError, "device must be a jax.Device, got 'cpu'"),
        ({"device": None}, TypeError, "device must be a jax.Device, got None"),
    ]:
        with pytest.raises(error, match=f"oriel.from_ptr: .*{said}"):
            oriel.from_ptr(**({"device": device} | good | wrong), owner=memory)
    with pytest.raises(TypeError, match="called while a program is traced"):
        jax.jit(lambda: oriel.from_ptr(**good, device=device, owner=memory))()
    with jax.enable_x64(False), pytest.raises(TypeError, match="int64 needs jax_enable_x64"):
        oriel.from_ptr(**(good | {"dtype": "int64"}), device=device, owner=memory)


def test_a_copy_is_an_error(monkeypatch):
    """Should XLA ever make one."""
    monkeypatch.setattr(_pointers, "_take_host", lambda *arguments: jnp.zeros(4))
    with pytest.raises(oriel.OrielError, match="a copy of the 32 bytes at ptr 0x40"):
        oriel.from_ptr(64, 4, float, device=jax.devices()[0], owner=None)
