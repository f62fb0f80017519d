"""The address of an array's memory, and an array over memory that is there."""

import math
import operator

import jax
import jax.numpy as jnp
import numpy as np

from oriel import _compat
from oriel._lib import OrielError, Status
from oriel._memory import dlpack as _dlpack

# XLA copies what lies otherwise on a CPU, and refuses it as a parameter of a program on a GPU.
_ALIGNMENT = {"cpu": 64, "gpu": 16}


def data_ptr(x):
    """The address of the memory of `x`, a jax.Array with one shard in this process.

    It waits until `x` is computed. The memory is the array's: the address is good as long
    as `x`, or an array that shares its memory, is there. What lies there must not be
    changed, unless it is memory that from_ptr was given. An array without elements has
    address 0.
    """
    _check_array(x)
    shards = x.addressable_shards
    if len(shards) != 1:
        raise ValueError(
            f"oriel.data_ptr: x has {len(shards)} shards in this process, each with an address "
            "of its own: take x.addressable_shards[i].data"
        )
    shard = shards[0].data
    shard.block_until_ready()
    return shard.unsafe_buffer_pointer() if shard.size else 0


def from_ptr(ptr, shape, dtype, *, device, owner):
    """A jax.Array over memory of `device` that begins at address `ptr`, without a copy.

        x = oriel.from_ptr(t.data_ptr(), t.shape, "float32", device=device, owner=t)

    The elements lie one after the other, the last dimension fastest. `owner` is whatever
    keeps the memory, or None where nothing need: it is kept as long as this array, another
    that shares its memory, or a program that still reads it. What is written to the memory
    is seen by programs that start later; a program must not be reading it meanwhile. A CPU's
    memory begins at a multiple of 64 bytes, a GPU's of 16.
    """
    if _compat.is_tracing():
        raise TypeError(
            "oriel.from_ptr: called while a program is traced: call it outside, and give the "
            "array to the program"
        )
    ptr, shape, dtype = _check_ptr(ptr), _check_shape(shape), _check_dtype(dtype)
    _check_device(device)
    size = math.prod(shape) * dtype.itemsize
    if size:
        _check_memory(ptr, size, device)
        take = _dlpack.take if device.platform == "gpu" else _take_host
        x = take(ptr, shape, dtype, device, owner)
    else:
        x = jax.device_put(np.empty(shape, dtype), device)
    _check_result(x, ptr, dtype)
    return x


class _Memory:
    """What NumPy takes for an array of bytes, and keeps."""

    def __init__(self, ptr, size, owner):
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (ptr, False),
            "shape": (size,),
            "typestr": "|u1",
        }


def view(ptr, shape, dtype, owner):
    """A NumPy array over memory of the host, which keeps the owner."""
    size = math.prod(shape) * dtype.itemsize
    return np.asarray(_Memory(ptr, size, owner)).view(dtype).reshape(shape)


def _take_host(ptr, shape, dtype, device, owner):
    return jax.device_put(view(ptr, shape, dtype, owner), device, may_alias=True)


def on_cpu(ptr, shape, dtype, device, owner):
    """As from_ptr, of arguments that are known to be right."""
    x = _take_host(ptr, shape, dtype, device, owner)
    _check_result(x, ptr, dtype)
    return x


# ---- what is asked for ---------------------------------------------------------------------


def _check_array(x):
    if isinstance(x, jax.core.Tracer):
        raise TypeError(
            f"oriel.data_ptr: x is a value of a program that is traced, {jax.typeof(x)}, and has "
            "no address yet; inside a program oriel.op hands addresses to a function"
        )
    if isinstance(x, np.ndarray):
        raise TypeError("oriel.data_ptr: x is a NumPy array, whose address is x.ctypes.data")
    if not isinstance(x, jax.Array):
        raise TypeError(f"oriel.data_ptr: x must be a jax.Array, got {type(x).__name__}")
    if x.is_deleted():
        raise ValueError(
            f"oriel.data_ptr: x, {jax.typeof(x)}, has no memory any more: it was deleted or donated"
        )
    if str(x.dtype) not in _dlpack.DTYPES:
        raise TypeError(f"oriel.data_ptr: {_unknown(x.dtype)}")


def _unknown(dtype):
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return f"PRNG keys, {dtype}, are numbers elsewhere: take jax.random.key_data"
    return (
        f"nobody else knows how dtype {dtype} lies in memory; it takes "
        f"{', '.join(sorted(_dlpack.DTYPES))}"
    )


def _check_ptr(ptr):
    try:
        if isinstance(ptr, (bool, np.bool_)):
            raise TypeError
        number = operator.index(ptr)
    except TypeError:
        raise TypeError(f"oriel.from_ptr: ptr must be an integer, got {ptr!r}") from None
    if not 0 <= number < 2**64:
        raise ValueError(f"oriel.from_ptr: ptr must be an address of 64 bits, got {ptr!r}")
    return number


def _check_shape(shape):
    try:
        known = tuple(map(operator.index, (shape,) if isinstance(shape, int) else shape))
    except TypeError:
        raise TypeError(f"oriel.from_ptr: shape must be integers, got {shape!r}") from None
    if any(length < 0 for length in known):
        raise ValueError(f"oriel.from_ptr: shape has a negative dimension, {known}")
    return known


def _check_dtype(dtype):
    try:
        if dtype is None:  # which NumPy takes for float64
            raise TypeError
        known = jnp.dtype(dtype)
    except TypeError:
        raise TypeError(f"oriel.from_ptr: dtype must be a dtype, got {dtype!r}") from None
    if known.name not in _dlpack.DTYPES or not known.isnative:
        raise TypeError(f"oriel.from_ptr: {_unknown(known)}")
    return known


def _check_device(device):
    if not isinstance(device, jax.Device):
        raise TypeError(f"oriel.from_ptr: device must be a jax.Device, got {device!r}")
    if device.platform not in _ALIGNMENT:
        raise ValueError(f"oriel.from_ptr: device must be a CPU or a GPU, got {device}")
    if device.process_index != jax.process_index(device.client):
        raise ValueError(
            f"oriel.from_ptr: device {device} belongs to process {device.process_index}, whose "
            "memory has no addresses here"
        )


def _check_memory(ptr, size, device):
    if ptr == 0:
        raise ValueError(f"oriel.from_ptr: ptr is 0, and there are {size} bytes to be there")
    if ptr + size > 2**63:
        raise ValueError(f"oriel.from_ptr: {size} bytes at ptr {ptr:#x} reach beyond all addresses")
    alignment = _ALIGNMENT[device.platform]
    if ptr % alignment:
        raise ValueError(
            f"oriel.from_ptr: ptr {ptr:#x} is not a multiple of {alignment}, where memory must "
            f"begin that XLA uses as it lies on {device}"
        )


def _check_result(x, ptr, dtype):
    if x.dtype != dtype:
        raise TypeError(f"oriel.from_ptr: dtype {dtype} needs jax_enable_x64")
    if x.size and x.unsafe_buffer_pointer() != ptr:
        raise OrielError(
            f"oriel.from_ptr: XLA has made a copy of the {x.nbytes} bytes at ptr {ptr:#x}",
            Status.UNSUPPORTED,
        )
