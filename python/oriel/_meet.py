"""How this process finds the others: its place among them, and the comm."""

import ctypes
import dataclasses
import numbers
import os
import socket

import jax
import jaxlib.version

from oriel import _compat, _lib, _wait
from oriel._lib import OrielError, Status

_ADDRESS_BYTES = 64

started_distributed = False  # jax.distributed is oriel's doing


@dataclasses.dataclass
class Place:
    process_id: int
    num_processes: int
    store: str | None = None
    secret: str | None = None
    distributed: bool = False  # JAX spans the processes, and its store is used
    starts_distributed: bool = False  # ... which oriel has to bring about


def check_arguments(process_id, num_processes, store, secret, distributed):
    """What can be wrong with those of oriel.init by which this process finds the others."""

    def refuse(name, value, wanted):
        raise OrielError(f"oriel.init: {name} must be {wanted}, got {value!r}", Status.INVALID)

    def is_integer(value):
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)

    if num_processes is not None and not (is_integer(num_processes) and num_processes >= 1):
        refuse("num_processes", num_processes, "a whole number from 1 on")
    if process_id is not None and not (is_integer(process_id) and process_id >= 0):
        refuse("process_id", process_id, "a whole number from 0 on")
    if (process_id is None) != (num_processes is None):
        raise OrielError(
            f"give process_id and num_processes together: process_id={process_id!r}, "
            f"num_processes={num_processes!r}",
            Status.INVALID,
        )
    if process_id is not None and process_id >= num_processes:
        refuse("process_id", process_id, f"below num_processes, which is {num_processes}")
    for name, value in (("store", store), ("secret", secret)):
        if value is not None and not isinstance(value, str):
            refuse(name, value if name == "store" else type(value), "text")
    if distributed is not None and not isinstance(distributed, bool):
        refuse("distributed", distributed, "True, False or None")


def find_place(process_id, num_processes, store, secret, distributed):
    """Decides from arguments, jax.distributed, the environment, in this order."""
    state = _compat.distributed_state()
    jax_spans = state.client is not None and state.num_processes > 1
    if process_id is not None:
        place = Place(process_id, num_processes, store, secret)
        if jax_spans and distributed is not False:
            _check_agrees(place, state)
    elif jax_spans:
        place = Place(state.process_id, state.num_processes, store, secret)
    else:
        place = _place_of_launcher(store, secret)
    if place.num_processes > 1 and distributed is not False:
        place.distributed = True
        place.starts_distributed = not jax_spans
    elif jax_spans and distributed is False:
        raise OrielError(
            "distributed=False, but jax.distributed is initialised already", Status.INVALID
        )
    return place


def _check_agrees(place, state):
    ours = (place.process_id, place.num_processes)
    theirs = (state.process_id, state.num_processes)
    if ours != theirs:
        raise OrielError(
            f"oriel.init was told process {ours[0]} of {ours[1]}, jax.distributed says "
            f"{theirs[0]} of {theirs[1]}",
            Status.INVALID,
        )


def _place_of_launcher(store, secret):
    """As `oriel run`, mpirun or srun say; alone without them."""
    number, count = ctypes.c_int(), ctypes.c_int()
    _lib.call("oriel_place_find", ctypes.byref(number), ctypes.byref(count))
    return Place(number.value, count.value, store, secret)


def _params(place, local_ranks, job, timeout=0.0, gpus=None):
    return _lib.CommParams(
        struct_size=ctypes.sizeof(_lib.CommParams),
        process_id=place.process_id,
        num_processes=place.num_processes,
        local_ranks=local_ranks,
        store=place.store.encode() if place.store else None,
        secret=place.secret.encode() if place.secret else None,
        job=job.encode(),
        timeout_s=timeout,
        devices=(ctypes.c_int * local_ranks)(*gpus) if gpus else None,
    )


def _with_store(place, params, function):
    """Calls it with `params`, which get JAX's key-value store where there is one."""
    if not place.distributed:
        return function()
    kv = _JaxStore(_compat.distributed_state().client)
    params.kv = ctypes.pointer(kv.table)
    return kv.run(function)


def create_comm(place, local_ranks, job, timeout=0.0, gpus=None, look=None):
    """Collective. `gpus`: the CUDA device of each rank; without it they are CPUs. `look` is
    called while it waits for the others, and ends that if it raises."""
    params = _params(place, local_ranks, job, timeout, gpus)

    def create():
        comm = ctypes.c_void_p()
        _lib.call("oriel_comm_create", ctypes.byref(params), ctypes.byref(comm))
        return comm

    def undo(comm):
        quit_comm(comm, "interrupted in init")

    return _wait.run(lambda: _with_store(place, params, create), look=look, undo=undo)


def quit_comm(comm, why):
    """Local: the others hear why this process leaves."""
    lib = _lib.load()
    lib.oriel_comm_quit(comm, why.encode())
    lib.oriel_comm_abandon(comm)


def refuse(place, job, error):
    """Local: tells the others that this process cannot come, and why."""
    if place.num_processes == 1:
        return
    params = _params(place, 1, job)
    status = error.status if isinstance(error, OrielError) else Status.SYSTEM
    why = _wait.sentence_of(error).encode()

    lib = _lib.load()

    def tell():
        lib.oriel_comm_refuse(ctypes.byref(params), status, why)

    try:
        if isinstance(error, KeyboardInterrupt):
            lib.oriel_interrupt(why)  # a person does not wait
        _wait.run(lambda: _with_store(place, params, tell))
    except Exception:
        pass  # there is nobody who could be told
    finally:
        lib.oriel_interrupt(None)


class _JaxStore:
    """The coordinator's key-value store as an oriel_store. Its RPCs are no
    collectives, so they cannot deadlock against one."""

    def __init__(self, client):
        self._client = client
        self._error = None
        self.table = _lib.Store(
            struct_size=ctypes.sizeof(_lib.Store),
            set=_lib.StoreSet(self._set),
            get=_lib.StoreGet(self._get),
        )

    def run(self, function):
        try:
            return function()
        except OrielError as error:
            if self._error is None:
                raise
            raise OrielError(f"JAX's key-value store: {self._error}", error.status) from None

    def _set(self, _ctx, key, value, length):
        try:
            self._client.key_value_set_bytes(key.decode(), ctypes.string_at(value, length))
        except Exception as error:
            if "ALREADY_EXISTS" in str(error):
                return Status.MISMATCH
            self._error = error
            return Status.SYSTEM
        return Status.OK

    def _get(self, _ctx, key, timeout, value, capacity, length_p):
        try:
            if timeout > 0:
                milliseconds = max(1, int(timeout * 1000))
                found = self._client.blocking_key_value_get_bytes(key.decode(), milliseconds)
            else:
                found = self._client.key_value_try_get_bytes(key.decode())
        except Exception as error:
            if "DEADLINE_EXCEEDED" in str(error) or "NOT_FOUND" in str(error):
                return Status.TIMEOUT
            self._error = error
            return Status.SYSTEM
        ctypes.memmove(value, found, min(len(found), capacity))
        length_p[0] = len(found)
        return Status.OK


class Gathering:
    """A comm of all processes, for as long as init takes: by it they see one that dies before the
    comm to come is there."""

    def __init__(self, place, job):
        # A comm made for this alone, since the comm to come needs the number of devices, and
        # asking JAX for devices comes after.
        self.comm = create_comm(dataclasses.replace(place, distributed=False), 1, job)

    def look(self):
        """Raises what has happened to another process."""
        lib = _lib.load()
        if lib.oriel_comm_check(self.comm) != Status.OK:
            sentence = lib.oriel_last_error().decode().removeprefix("the comm was revoked: ")
            raise OrielError(sentence, Status.PEER)

    def meet(self):
        _wait.run(lambda: _lib.call("oriel_comm_barrier", self.comm))

    def fail(self, error):
        quit_comm(self.comm, _wait.sentence_of(error))

    def close(self):
        _lib.load().oriel_comm_abandon(self.comm)


def start_distributed(place, job):
    """Collective. Initialises jax.distributed, with its coordinator in process 0: on all
    processes, or on none. Returns the gathering, which the caller closes."""
    global started_distributed

    if _compat.backends_exist():
        error = OrielError(
            "JAX has made its devices already, so jax.distributed cannot be initialised: call "
            "oriel.init() before the first JAX computation, or with distributed=False",
            Status.INVALID,
        )
        refuse(dataclasses.replace(place, distributed=False), job, error)
        raise error
    gathering = Gathering(place, job)
    try:
        address, index, count = _agree(gathering.comm, place)
        _wait.run(
            lambda: _initialize(place, address, _share_of_gpus(index, count)),
            look=gathering.look,
            leave=True,  # JAX waits for all processes, without an end that could be moved
        )
        gathering.meet()
    except BaseException as error:
        _compat.forget_distributed()
        gathering.fail(error)
        raise
    started_distributed = True
    return gathering


def _initialize(place, address, devices):
    jax.distributed.initialize(
        address,
        place.num_processes,
        place.process_id,
        cluster_detection_method="deactivate",
        coordinator_bind_address=address,
        local_device_ids=devices,
    )


def _share_of_gpus(index, processes):
    """Which GPUs of this machine fall to process `index` of those here; None: all, or there are
    none.

    Processes that share a GPU cannot each take most of its memory first."""
    count = 0 if "JAX_LOCAL_DEVICE_IDS" in os.environ else _count_gpus()
    if count == 0:
        return None
    _compile_alone()
    each = count // processes
    if each > 0:
        return list(range(index * each, (index + 1) * each))
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return [index % count]


_ALONE = "xla_gpu_shard_autotuning"
_FLAGS_KNOWN = (0, 13)  # the first jaxlib of which it is not known: XLA ends where it does not


def _compile_alone():
    """Processes that compile share what XLA tries out, and wait for each other to compile the same:
    for ever where programs differ, in a constant even."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _ALONE not in flags and jaxlib.version.__version_info__ < _FLAGS_KNOWN:
        os.environ["XLA_FLAGS"] = f"{flags} --{_ALONE}=false".strip()


def _count_gpus():
    platforms = jax.config.jax_platforms
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return 0
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if found else 0


def _agree(comm, place):
    """Process 0 picks a free port of its machine and tells the rest. Also says which of how
    many processes of its machine this one is."""
    lib = _lib.load()
    several = lib.oriel_comm_num_machines(comm) > 1
    text = ctypes.create_string_buffer(_ADDRESS_BYTES)
    if place.process_id == 0:
        host = _own_address(place) if several else "127.0.0.1"
        text.value = f"{f'[{host}]' if ':' in host else host}:{_free_port(host)}".encode()
    _wait.run(lambda: _lib.call("oriel_comm_share", comm, Status.OK, text, len(text), 0.0))
    machines = [lib.oriel_comm_machine(comm, p) for p in range(place.num_processes)]
    mine = machines[place.process_id]
    before = machines[: place.process_id].count(mine)
    return text.value.decode(), before, machines.count(mine)


def _own_address(place):
    """Process 0's address as other machines see it: the one from which the store is reached."""
    given = os.environ.get("ORIEL_ADDRESS")
    if given:
        return given
    store = place.store or os.environ.get("ORIEL_STORE", "")
    host, colon, port = store.rpartition(":")
    if not colon or not port.isdigit():
        return "127.0.0.1"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # nothing is sent
        probe.connect((host.strip("[]") or "127.0.0.1", int(port)))
        return probe.getsockname()[0]


def _free_port(host):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]
