"""Memory of every device along an axis, or of every rank of a group, that lives until it is freed:
oriel.window."""

import ctypes
import dataclasses
import functools
import gc
import math
import operator
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from oriel import _compat, _lib, _wait, _world
from oriel._collectives import groups as _groups
from oriel._collectives import primitive as _primitive
from oriel._memory import pointers as _pointers
from oriel._memory.access import Handle

_PACKED = ("int2", "uint2", "int4", "uint4", "float4_e2m1fn")  # two or more share a byte
_LOOK = 0.0005  # seconds between two looks


def window(shape, dtype, mesh=None, axis_name=None, *, group=None):
    """Memory of `shape` on every device, zeroed, that all of them can address.

    mesh, axis_name   the devices are those of the mesh; those along the axes are each other's
                      peers. Without a mesh that of jax.set_mesh
    group             made by oriel.group: its ranks are, each with the one device of its process;
                      with neither axis_name nor group all ranks of the world

    Collective over the processes that have such devices, which all give the same shape and dtype.
    The result is a pytree: programs take it as an argument, and operations, kernels and host
    functions of oriel use it where it lies. See oriel.Window.
    """
    kind = _Kind(*_check(shape, dtype), *_members(mesh, axis_name, group))
    if kind.mesh is not None and not kind.shape:
        raise ValueError("oriel.window: shape is (), and the mesh divides the first dimension")
    world = _world.current()
    if world.platform != "cpu":
        raise NotImplementedError(
            "oriel.window: windows are of host memory, and the ranks of this world are GPUs"
        )
    return Window(kind, _Memory(world, kind))


def _check(shape, dtype):
    try:
        given = (shape,) if isinstance(shape, int) else shape
        shape = tuple(map(operator.index, given))
    except TypeError:
        raise TypeError(f"oriel.window: shape must be a shape, got {shape!r}") from None
    if min(shape, default=1) < 1:
        raise ValueError(f"oriel.window: shape is {shape}; each dimension is at least 1")
    dtype = jax.dtypes.canonicalize_dtype(jnp.dtype(dtype))
    if dtype.name in _PACKED or dtype.kind in "OSUMm" or dtype.itemsize < 1:
        raise TypeError(f"oriel.window: elements of {dtype.name} have no whole bytes of their own")
    return shape, dtype


def _members(mesh, axis_name, group):
    """(mesh, axes) of a _Kind."""
    axes = _groups.chosen("window", axis_name, group)
    if _groups.over_ranks(axes):
        if mesh is not None:
            raise ValueError(f"oriel.window: mesh is given, and axis_name is not: {mesh}")
        _primitive.find_axes("window", axes)
        return None, axes
    if mesh is None:
        mesh = _compat.context_mesh()
    if mesh is None or getattr(mesh, "empty", False):
        raise ValueError(
            f"oriel.window: axis_name={axis_name!r} is of a mesh: give it, or use jax.set_mesh"
        )
    if not isinstance(mesh, jax.sharding.Mesh):
        raise TypeError(f"oriel.window: mesh must be a jax.sharding.Mesh, of devices, got {mesh!r}")
    axes = _primitive.list_axes(axes)
    for name in axes:
        if name not in mesh.axis_names:
            raise ValueError(
                f"oriel.window: axis_name {name!r} is none of the mesh's axes {mesh.axis_names}"
            )
    return mesh, axes


@dataclasses.dataclass(frozen=True)
class _Kind:
    """What windows have alike that a program may take one for another."""

    shape: tuple  # of a device's part
    dtype: np.dtype
    mesh: jax.sharding.Mesh | None  # None: over ranks
    axes: object  # as in groups.py

    @property
    def bytes(self):
        return math.prod(self.shape) * self.dtype.itemsize

    @functools.cached_property
    def spec(self):
        return PartitionSpec() if self.mesh is None else PartitionSpec(self.mesh.axis_names)

    @functools.cached_property
    def sharding(self):
        return NamedSharding(self.mesh, self.spec)

    @property
    def global_shape(self):
        if self.mesh is None:
            return self.shape
        return (self.shape[0] * self.mesh.size, *self.shape[1:])

    def ranks(self, world):
        """All that have a part."""
        if self.mesh is None:
            return list(_groups.ranks_of(self.axes))
        return [int(rank) for rank in world.ranks_of(self.mesh).flat]

    def peers(self, world, rank):
        """Those that are each other's peers with this one, in their order."""
        if self.mesh is None:
            return self.ranks(world)
        rows = _groups.of_axes(world.ranks_of(self.mesh), self.mesh.axis_names, self.axes)
        return next(list(map(int, row)) for row in rows if rank in row)


# ---- the memory ---------------------------------------------------------------------------

_known = weakref.WeakValueDictionary()  # number: _Memory, of the world that there is


class _Memory:
    """A window of the library's. It is let go when nothing in this process uses it any more: no
    Window, no array, and no program that runs."""

    def __init__(self, world, kind):
        ranks = kind.ranks(world)
        numbers = (ctypes.c_int * len(ranks))(*ranks)
        handle = ctypes.c_void_p()
        make = functools.partial(
            _lib.call,
            "oriel_ffi_window_create",
            world.comm,
            numbers,
            len(ranks),
            kind.bytes,
            ctypes.byref(handle),
        )
        _wait.run(make, undo=lambda _: _lib.load().oriel_ffi_window_release(handle))
        self._finalizer = weakref.finalize(self, _lib.load().oriel_ffi_window_release, handle)
        self._finalizer.atexit = False
        self.handle = handle
        self.kind = kind
        mine = range(world.first_rank, world.first_rank + world.local_size)
        device_of = {rank: device for device, rank in _devices(world)}
        self.parts = {rank: device_of[rank] for rank in ranks if rank in mine}
        _, self.number = self.look(next(iter(self.parts)))
        _known[self.number] = self

    def look(self, rank):
        """(address of the part of a rank, number of the window)"""
        address, number = ctypes.c_void_p(), ctypes.c_uint64()
        _lib.call(
            "oriel_ffi_window_look", self.handle, rank, ctypes.byref(address), ctypes.byref(number)
        )
        return address.value, number.value

    def view(self, rank, hold=None):
        """The part of a rank as a NumPy array, which keeps the memory."""
        return _pointers.view(*self._place(rank), hold or _Hold(self))

    def _place(self, rank):
        return self.look(rank)[0], self.kind.shape, self.kind.dtype

    def on_device(self, rank, device, hold=None):
        """The same as an array of JAX's."""
        return _pointers.on_cpu(*self._place(rank), device, hold or _Hold(self))

    def array(self, hold=None):
        arrays = [self.on_device(rank, device, hold) for rank, device in self.parts.items()]
        if self.kind.mesh is None:
            return arrays[0]
        return jax.make_array_from_single_device_arrays(
            self.kind.global_shape, self.kind.sharding, arrays
        )


class _Hold:
    """What an array keeps: there for as long as the array, and what runs with it, needs memory."""

    def __init__(self, memory):
        self.memory = memory
        self.array = lambda: None  # a weak reference to what programs were given


def _collect():
    """JAX lets go of what arrays kept when Python collects garbage, or a program is called."""
    gc.collect(0)


def _finish_programs(devices):
    """Those that this thread has called: a device runs them one after the other."""
    with jax.ensure_compile_time_eval():
        for device in devices:
            jax.block_until_ready(jnp.add(jax.device_put(np.int32(0), device), 1))


def _devices(world):
    for device in jax.local_devices(backend=world.platform):
        yield device, world.rank_of[device.id]


def register(x):
    """How the other processes reach an array that is there: "window" if it lies in one, or "read",
    out of this process's memory, as larger operations do. An error says why they cannot.

    Nothing is exchanged, and the array needs no letting go."""
    if is_symmetric(x):
        return "window"
    try:
        _lib.call("oriel_ffi_reads")
    except _lib.OrielError as error:
        raise _lib.OrielError(f"oriel.register: {error}; a window can be reached", error.status)
    return "read"


def is_symmetric(x):
    """(the window that an array lies in, bytes from the begin of its device's part) or None."""
    number, rank, offset = ctypes.c_uint64(), ctypes.c_int(), ctypes.c_uint64()
    found = _lib.load().oriel_ffi_window_find(
        _pointers.data_ptr(x), ctypes.byref(number), ctypes.byref(rank), ctypes.byref(offset)
    )
    memory = _known.get(number.value) if found == _lib.Status.OK else None
    return memory and (Window(memory.kind, memory), offset.value)


# ---- what a person has --------------------------------------------------------------------


@jax.tree_util.register_pytree_node_class
class Window(Handle):
    """Memory of every device, made by oriel.window.

    A program takes it as an argument. There it is used by oriel's operations, kernels and host
    functions, as an operand or by `into=`, and by oriel.load and oriel.store. Its other methods are
    for outside of programs. What a program that runs may write is undefined there until its ticket
    is ready."""

    def __init__(self, kind, memory, operand=None):
        self._kind = kind
        self._memory = memory  # None: it is freed, or what a program has
        self._traced = operand  # what a program has
        self._given = None  # the array that programs are given
        self._holds = weakref.WeakSet()  # of all such arrays

    # ---- inside a program -----------------------------------------------------------

    def tree_flatten(self):
        return (self._operand(),), self._kind

    @classmethod
    def tree_unflatten(cls, kind, children):
        return cls(kind, None, children[0])

    def _operand(self):
        if self._traced is not None:
            return self._traced
        if _compat.is_tracing():
            raise ValueError(
                f"{self!r} is closed over by a program that is being traced: make it an argument "
                "of the jitted function"
            )
        memory = self._living("an operand")
        given = self._given
        if given is None or given.is_deleted():
            hold = _Hold(memory)
            self._holds.add(hold)
            self._given = given = memory.array(hold)
            hold.array = weakref.ref(given)
        return given

    def _settled(self, what):
        """The memory, once no program that was given it runs any more."""
        memory = self._living(what)
        self._given = None
        begun, patience = time.monotonic(), float(_lib.option("ORIEL_TIMEOUT"))
        while self._is_used():
            if time.monotonic() - begun > patience:
                raise _lib.OrielError(
                    f"{self!r}: programs that use it run for {patience:g} s, or an array that "
                    "shares what they were given is there",
                    _lib.Status.TIMEOUT,
                )
            time.sleep(_LOOK)
        if self._holds:
            _finish_programs(memory.parts.values())
        return memory

    def _is_used(self):
        """By a program, though nobody has the array any more that it was given. Where somebody has,
        that is not known."""
        if self._holds:
            _collect()
        return any(hold.array() is None for hold in list(self._holds))

    # ---- outside --------------------------------------------------------------------

    @property
    def shape(self):
        """Of one device's part; inside a program of what that has."""
        return self._kind.shape if self._traced is None else self._traced.shape

    @property
    def dtype(self):
        return self._kind.dtype

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def spec(self):
        """What jax.shard_map takes as in_specs for it."""
        return self._kind.spec

    @property
    def number(self):
        """The same on all processes; no other window of the world has it, before or after."""
        return self._living("number").number

    @property
    def array(self):
        """A new array of JAX's over the memory: each part where it lies, nothing is copied.
        Whatever writes the window changes it; a program that is traced has it as a constant."""
        with jax.ensure_compile_time_eval():
            return self._settled("array").array()

    def write(self, x):
        """Copies into this process's parts: an array of one part's shape, the same for each, or of
        the whole of `array`."""
        memory = self._settled("write")
        for rank, value in self._pieces(memory, x):
            np.copyto(memory.view(rank), value)

    def read(self, rank=None, *, device=None):
        """A copy of a part: of the peer with this index along the axes or in the group, by default
        of the device, one of this process's, by default its first. It has what was written before
        the last barrier that both have passed."""
        memory = self._settled("read")
        return memory.view(self._peer(memory, rank, device)[0]).copy()

    def peer(self, rank, *, device=None):
        """The part of a peer, as read(), as an array of JAX's on this process's device, where
        nothing is copied: what it has is defined between two barriers that both have passed."""
        memory = self._settled("peer")
        owner, own = self._peer(memory, rank, device)
        with jax.ensure_compile_time_eval():
            return memory.on_device(owner, memory.parts[own])

    def free(self):
        """Lets go of it. Local, in any order, more than once; arrays over it stay good. The memory
        is used again when no process has any more of it."""
        if self._traced is not None:
            self._living("free")
        self._memory = self._given = None
        _collect()

    def _living(self, what):
        if self._memory is not None:
            return self._memory
        if self._traced is not None:
            raise TypeError(
                f"oriel.Window: {what} is for outside of programs; this is what a program has, or "
                "has returned"
            )
        raise ValueError(f"{self!r} has been freed")

    def _peer(self, memory, index, device):
        """(the rank, this process's that it is the peer of)"""
        own = next(iter(memory.parts))
        if device is not None:
            own = next((rank for rank, d in memory.parts.items() if d == device), None)
            if own is None:
                raise ValueError(f"oriel.Window: device {device} has no part of {self!r} here")
        if index is None:
            return own, own
        ranks = self._kind.peers(_world.current(), own)
        index = operator.index(index)
        if not 0 <= index < len(ranks):
            raise ValueError(f"oriel.Window: rank is {index}, of {len(ranks)}")
        return ranks[index], own

    def _pieces(self, memory, x):
        """(rank, what goes there) for each part here."""
        kind = self._kind
        given = np.dtype(x.dtype) if hasattr(x, "dtype") else None
        if given is not None and given != kind.dtype:
            raise TypeError(f"oriel.Window.write: x is of {given}, the window of {kind.dtype}")
        shape = np.shape(x)
        if isinstance(x, jax.Array) and kind.mesh is not None and shape == kind.global_shape:
            shards = {shard.device: shard.data for shard in x.addressable_shards}
            if x.sharding.is_equivalent_to(kind.sharding, len(shape)):
                return [(rank, shards[device]) for rank, device in memory.parts.items()]
        if shape == kind.shape:
            return [(rank, np.asarray(x, kind.dtype)) for rank in memory.parts]
        if shape != kind.global_shape:
            raise ValueError(
                f"oriel.Window.write: x has shape {shape}, a part {kind.shape}"
                + (f", all of it {kind.global_shape}" if kind.mesh is not None else "")
            )
        whole = np.asarray(x, kind.dtype)
        index = kind.sharding.addressable_devices_indices_map(shape)
        return [(rank, whole[index[device]]) for rank, device in memory.parts.items()]

    def __repr__(self):
        shape = ",".join(map(str, self.shape))
        if self._traced is not None:
            state = "in a program"
        else:
            state = "freed" if self._memory is None else f"number {self._memory.number}"
        return f"<oriel.Window {self.dtype.name}[{shape}], {state}>"

    def __array__(self, *_, **__):
        raise TypeError(f"{self!r} is no array: take its array, read() it or oriel.load() it")

    def __reduce__(self):
        raise TypeError(f"{self!r} is memory of this world, and cannot be copied or pickled")
