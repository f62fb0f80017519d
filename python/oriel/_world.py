"""The world of this process: init, finalize, and which device is which rank."""

import atexit
import ctypes
import dataclasses
import functools
import numbers
import os
import sys
import threading
import time

import jax
import jaxlib
import numpy as np

from oriel import _compat, _lib, _meet, _threads, _wait, _wheels
from oriel._calls import order as _order
from oriel._compile import nvrtc as _nvrtc
from oriel._lib import OrielError, Status

# Seconds to wait
_EXIT_WAIT = 10.0  # at exit, for the other processes to come to their end too
_IDLE_WAIT = 3.0  # at exit, with nothing begun, while others wait for an operation of this process
_FLIGHT_WAIT = 1.0  # at exit, then, for operations that nobody looked at
_FAILED_WAIT = 1.0  # at exit after a failure, in process 0, for the others to report it too

# What the comms are called in the store: that of the world, and the one that jax.distributed is
# started by.
_JOB, _START = "oriel", "oriel/start"

_lock = threading.RLock()
_world = None
_last_shape = None  # of the world before: programs lowered for another are stale
_registered = set()  # backends whose XLA knows the custom calls
_broken = False  # the last world ended in a failure


@dataclasses.dataclass
class World:
    comm: ctypes.c_void_p  # finalize frees it: for the thread that ends the world alone
    pid: int
    asked: dict  # each argument of init: what was given, what came of it
    size: int
    first_rank: int
    local_size: int
    process_id: int
    num_processes: int
    num_machines: int
    platform: str  # of JAX's devices: "cpu" or "gpu"
    rank_of: dict  # JAX device id -> rank

    def ranks_of(self, mesh):
        """The ranks of a mesh's devices, in its shape."""
        if isinstance(mesh, jax.sharding.AbstractMesh):
            raise ValueError(
                f"the devices of {mesh} are unknown when the program is lowered: give "
                "jax.shard_map the concrete mesh, or run inside jax.set_mesh"
            )
        for device in mesh.devices.flat:
            if device.platform != self.platform or device.id not in self.rank_of:
                raise ValueError(
                    f"{device} is no rank of this world, which has the {self.size} "
                    f"{self.platform.upper()} devices that oriel.init found"
                )
        return np.vectorize(lambda device: self.rank_of[device.id], otypes=[int])(mesh.devices)


def init(
    process_id=None,
    num_processes=None,
    store=None,
    *,
    secret=None,
    distributed=None,
    timeout=None,
    platform=None,
):
    """Joins this process to its world. Collective: every process calls it.

    Without arguments it finds its way: an initialised jax.distributed (whose
    key-value store then carries the bootstrap), the environment of `oriel run`,
    mpirun or srun, or alone as a world of one process. By hand: `process_id`,
    `num_processes` and `store`, an address ("unix:@name" or "host:port") that
    process 0 serves.

    With several processes it also initialises jax.distributed where that has
    not been done, so that jax.devices() spans all of them; `distributed=False`
    keeps JAX local. `timeout` is the deadline of one operation in seconds.

    The ranks are JAX's devices of `platform`, "cpu" or "cuda"; without it, GPUs
    where JAX's default backend is CUDA, else CPUs. Several processes may share a
    GPU. There, a failure that the device finds is raised by the next program
    that calls oriel, by check() or by finalize(), or with ORIEL_SYNC=1 by the
    program itself.

    A second call keeps the world if it asks for the same, and fails otherwise, or
    when the world has failed.

    It fails on all processes or on none. Ctrl-C ends it within a second.
    """
    asked = {
        "process_id": process_id,
        "num_processes": num_processes,
        "store": store,
        "secret": secret,
        "distributed": distributed,
        "timeout": timeout,
        "platform": platform,
    }
    with _lock:
        if _world is not None:
            _check_same(asked, _world.asked)
            _check_works(_world)
            return
        _meet.check_arguments(process_id, num_processes, store, secret, distributed)
        _threads.reserve()
        place = _meet.find_place(process_id, num_processes, store, secret, distributed)
        _begin(place, asked)


def _begin(place, asked):
    """Called with the lock held."""
    global _world, _last_shape, _broken

    _register_end()
    gathering = None
    if place.starts_distributed:
        gathering = _meet.start_distributed(place, _START)
    try:
        backend = _prepare(place, asked["platform"], asked["timeout"])
        _world = _join(place, backend, asked, asked["timeout"], gathering)
    except BaseException:
        _broken = True
        raise
    finally:
        if gathering is not None:
            gathering.close()
    _broken = False
    shape = (_world.size, _world.first_rank, _world.platform, _world.rank_of)
    # Graphs hold addresses of the world that they were captured in.
    stale = _lib.load().oriel_ffi_cuda_stale()
    if stale or _last_shape not in (None, shape):
        jax.clear_caches()
    _last_shape = shape


def finalize():
    """Leaves the world. Collective, like init; without a world it does nothing.

    After a failure it waits for nobody, and raises it if nothing has before. Ctrl-C ends it
    within a second. A new init may follow."""
    global _world, _broken

    with _lock:
        if _world is None:
            return
        _broken = _has_failed(_world)
        world, _world = _world, None
        ending = _Ending(world)
        try:
            _wait.run(ending.run, give_up=ending.give_up)
        finally:
            _broken = _broken or ending.failed


class _Ending:
    """The end of a world: what runs is awaited, then all meet."""

    def __init__(self, world):
        self._world = world
        self._comm = world.comm
        self._lock = threading.Lock()
        self._meets = False  # the comm goes by itself from here on
        self.failed = True

    def run(self):
        _wait_for_results(self._world)
        untold = _detach(float("inf"))  # operations have deadlines
        failed = untold is not None or _has_failed(self._world)
        with self._lock:
            self._meets = True
        _lib.call("oriel_comm_destroy", self._comm)
        self.failed = failed
        if untold is not None:
            raise untold

    def give_up(self):
        """Operations in flight end with the comm; the meeting ends by itself."""
        with self._lock:
            if not self._meets:
                _lib.load().oriel_comm_quit(self._comm, b"interrupted in finalize")


def _wait_for_results(world):
    """JAX begins programs when it can, and what has not begun fails without a world: those whose
    results are still there to be used come first. A failure, or the deadline, ends the wait. GPUs
    have it in their streams."""
    arrays = jax.live_arrays(world.platform) if world.platform == "cpu" else ()
    begun, late = time.monotonic(), None
    for array in arrays:
        while not _is_ready(array) and not _has_failed(world):
            late = late or begun + float(world.asked["timeout"][0] or _lib.option("ORIEL_TIMEOUT"))
            if time.monotonic() > late:
                return
            time.sleep(0.001)


def _is_ready(array):
    try:
        return array.is_ready()
    except RuntimeError:  # it has been deleted
        return True


def check():
    """Raises the failure that ended the world, if one did."""
    _lib.call("oriel_ffi_check")


def current():
    """The world; an error before init and after finalize."""
    world = _world
    if world is None:
        raise OrielError("there is no world: call oriel.init() first", Status.INVALID)
    return world


def is_initialized():
    return _world is not None


def size():
    """Ranks in the world: all devices of all processes."""
    return current().size


def rank():
    """This process's first rank."""
    return current().first_rank


def local_size():
    """Ranks of this process."""
    return current().local_size


def process_id():
    return current().process_id


def num_processes():
    return current().num_processes


def gpu_arch():
    """What kernels are compiled for, "sm_90"; None where ranks are CPUs."""
    if current().platform != "gpu":
        return None
    version = jax.local_devices(backend="cuda")[0].compute_capability
    return "sm_" + version.replace(".", "")


def _check_same(asked, before):
    for name, value in asked.items():
        if value is None or value in before[name]:
            continue
        told = "" if name == "secret" else f": it was {before[name][-1]!r} and is {value!r}"
        raise OrielError(
            f"oriel.init was called before with another {name}{told}; call oriel.finalize() first",
            Status.INVALID,
        )


def _check_works(world):
    """A second init of a world that has failed would keep it."""
    lib = _lib.load()
    if lib.oriel_comm_check(world.comm) != Status.OK:
        raise OrielError(
            f"{lib.oriel_last_error().decode()}; call oriel.finalize() and then oriel.init()",
            Status.REVOKED,
        )


_PLATFORMS = (None, "cpu", "cuda")


def _check_platform(platform):
    if platform not in _PLATFORMS:
        raise OrielError(f"platform must be 'cpu' or 'cuda', got {platform!r}", Status.INVALID)


def _check_timeout(timeout):
    if timeout is not None and not (isinstance(timeout, numbers.Real) and timeout > 0):
        raise OrielError(
            f"oriel.init: timeout must be a positive number of seconds, got {timeout!r}",
            Status.INVALID,
        )


def _find_devices(backend):
    try:
        return jax.local_devices(backend=backend)
    except RuntimeError as error:
        raise OrielError(
            f"JAX has no devices of platform {backend!r} here: {error}", Status.UNSUPPORTED
        ) from None


def _choose_backend(platform):
    """The name that JAX knows the devices by."""
    if platform is not None or jax.default_backend() != "gpu":
        return platform or "cpu"
    return "cuda"


def _prepare(place, platform, timeout):
    """JAX's part, on this process alone. What fails here fails on all."""
    try:
        # Where JAX spans the processes they wait in it for the devices of all: so that comes first.
        backend = _choose_backend(platform if platform in _PLATFORMS else None)
        devices = _find_devices(backend)
        _check_platform(platform)
        _check_timeout(timeout)
        if backend == "cpu" and (shortage := _threads.shortage(len(devices))):
            raise OrielError(shortage, Status.INVALID)
        _register(backend)
    except BaseException as error:
        _meet.refuse(place, _JOB, error)
        raise
    return backend


def _attach(comm, ordinals):
    """The last that can fail, and by then others may think that all is well: so all meet."""
    _lib.call("oriel_ffi_attach", comm, (ctypes.c_int * len(ordinals))(*ordinals), len(ordinals))
    _wait.run(lambda: _lib.call("oriel_comm_barrier", comm))


def _join(place, backend, asked, timeout, gathering):
    devices = jax.local_devices(backend=backend)
    gpus = None
    if backend == "cuda":
        _show_libraries()
        gpus = [device.local_hardware_id for device in devices]
    look = gathering.look if gathering else None
    comm = _meet.create_comm(place, len(devices), _JOB, timeout or 0.0, gpus, look)
    try:
        return _make_world(comm, place, backend, asked, gpus)
    except BaseException as error:  # Ctrl-C may come when the others think that all is well
        _detach(0.0)
        _meet.quit_comm(comm, _wait.sentence_of(error))
        raise


def _make_world(comm, place, backend, asked, gpus):
    lib = _lib.load()
    devices = jax.local_devices(backend=backend)
    lib.oriel_spread_begin(comm)  # that was in another thread
    size, first = lib.oriel_comm_size(comm), lib.oriel_comm_first_rank(comm)
    if place.distributed:
        rank_of = _ranks_of_processes(jax.devices(backend))
    else:
        rank_of = {device.id: first + i for i, device in enumerate(devices)}
    # As XLA's handlers see them.
    _attach(comm, gpus or [device.id for device in devices])
    return World(
        comm=comm,
        pid=os.getpid(),
        asked={name: (value, getattr(place, name, value)) for name, value in asked.items()},
        size=size,
        first_rank=first,
        local_size=len(devices),
        process_id=place.process_id,
        num_processes=place.num_processes,
        num_machines=lib.oriel_comm_num_machines(comm),
        platform=devices[0].platform,
        rank_of=rank_of,
    )


def _ranks_of_processes(devices):
    """Process by process, in the order of each process's own devices."""
    ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
    return {device.id: i for i, device in enumerate(ordered)}


def _show_libraries():
    """Where the library finds NVRTC and NCCL: in JAX's wheels, if anywhere."""
    for name, find in (("ORIEL_NVRTC", _nvrtc.find), ("ORIEL_NCCL", _wheels.nccl)):
        if name not in os.environ and (path := find()):
            os.environ[name] = path


# XLA's name of the platform, what the handlers are called, their stages, those of calls that
# borrow XLA's communicators besides, and what executes host functions.
_HANDLERS = {
    "cpu": ("cpu", "oriel_ffi", ("instantiate", "execute"), (), "execute"),
    "cuda": (
        "CUDA",
        "oriel_ffi_cuda",
        ("instantiate", "initialize", "execute"),
        ("prepare",),
        "execute_uncaptured",
    ),
}


# Custom calls that graphs have no part in: a person's function, which may do anything, and in a
# world of several machines a kernel; and NCCL's, which keeps a communicator for as long as there
# is a graph that calls it.
_UNCAPTURED = ("op", "all_reduce_nccl")

_ENDS = ("send", "recv", "sendrecv")  # of messages


def _register(backend):
    """Tells XLA about the custom calls; once per process and backend."""
    if backend in _registered:
        return
    lib = _lib.load()
    lib.oriel_ffi_runtime(f"jaxlib {jaxlib.__version__}".encode())
    platform, prefix, stages, more, execute_op = _HANDLERS[backend]

    def capsule(symbol):
        return jax.ffi.pycapsule(ctypes.cast(symbol, ctypes.c_void_p))

    type_id = ctypes.c_int64.in_dll(lib, f"{prefix}_site_type_id")
    type_info = ctypes.c_void_p.in_dll(lib, "oriel_ffi_site_type_info")
    jax.ffi.register_ffi_type(
        "oriel_site",
        {
            "type_id": capsule(ctypes.pointer(type_id)),
            "type_info": capsule(type_info),
        },
        platform=platform,
    )
    for name in (*_lib.OPERATIONS, *_UNCAPTURED, *_ENDS):
        handlers = {stage: capsule(getattr(lib, f"{prefix}_{stage}")) for stage in stages}
        if name in _UNCAPTURED:
            handlers["execute"] = capsule(getattr(lib, f"{prefix}_{execute_op}"))
        jax.ffi.register_ffi_target(f"oriel_{name}", handlers, platform=platform)
        if borrowing := {stage: capsule(getattr(lib, f"{prefix}_{stage}")) for stage in more}:
            jax.ffi.register_ffi_target(
                f"oriel_{name}_borrowing", handlers | borrowing, platform=platform
            )
    after = lib.oriel_ffi_after if backend == "cpu" else lib.oriel_ffi_cuda_copy
    jax.ffi.register_ffi_target(_order.AFTER, capsule(after), platform=platform)
    if backend == "cpu":
        jax.ffi.register_ffi_target("oriel_load", capsule(lib.oriel_ffi_load), platform=platform)
        jax.ffi.register_ffi_target("oriel_store", capsule(lib.oriel_ffi_store), platform=platform)
    _registered.add(backend)


@functools.cache
def _register_end():
    """Once. JAX registered its handler when it was imported, so this one runs before."""
    atexit.register(_leave_at_exit)


def _leave_at_exit():
    """Ends the world without hanging, whatever state the others are in.

    A process that ended well stays a while: programs it started but never
    looked at may still be running, and others may be waiting for their part."""
    global _world, _broken

    # Without the lock: a thread in init may hold it for long. A finalize in another thread takes
    # the world, or this does.
    world, _world = _world, None
    untold = None
    if world is not None and os.getpid() == world.pid:  # else a forked child ends
        lib = _lib.load()
        lib.oriel_comm_leave(world.comm)
        why = _failure_of_program()
        _broken = why is not None or _has_failed(world)
        if not _broken and not _wait_for_others(world):
            why = "its program has ended"
        if why is not None:
            lib.oriel_comm_quit(world.comm, why.encode())
        _broken = _broken or (_has_failed(world) and not _all_leaving(world))
        untold = _detach(0.0 if _broken else _FLIGHT_WAIT)
        lib.oriel_comm_abandon(world.comm)
    if _broken and _meet.started_distributed:
        if _compat.distributed_state().process_id == 0:
            time.sleep(_FAILED_WAIT)  # JAX ends the others once its coordinator is gone
        _compat.forget_distributed()
    # Others that leave first are no failure.
    if untold is not None and (_broken or untold.status != Status.PEER):
        print(f"oriel: {untold}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def _detach(patience):
    """Ends what runs; the failure of a GPU that nothing has raised, or None."""
    lib = _lib.load()
    status = lib.oriel_ffi_detach(patience)
    if status == Status.OK:
        return None
    return OrielError(lib.oriel_last_error().decode(), status)


def _has_failed(world):
    return _lib.load().oriel_comm_check(world.comm) != Status.OK


def _all_leaving(world):
    return _lib.load().oriel_comm_leaving(world.comm) == world.num_processes


def _failure_of_program():
    """What ended the program, if an exception did."""
    error = getattr(sys, "last_value", None)
    if error is None:
        return None
    text = "".join(str(error).splitlines()[:1])
    return f"its program was ended by {type(error).__name__}{': ' if text else ''}{text}"


def _wait_for_others(world):
    """Until all have come to their end, or one has failed, or patience has. False where others
    wait for an operation of this process that it will not begin any more."""
    lib = _lib.load()
    end = time.monotonic() + _EXIT_WAIT
    seen, idle_since = -1, 0.0
    while not _all_leaving(world) and not _has_failed(world) and (now := time.monotonic()) < end:
        before, seen = seen, lib.oriel_comm_awaited(world.comm)
        if seen < 0 or seen != before:
            idle_since = now
        if now - idle_since > _IDLE_WAIT:
            return False
        time.sleep(0.002)
    return True
