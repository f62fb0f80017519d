"""liboriel.so through ctypes: the types of oriel.h that Python needs, and errors."""

import ctypes
import enum
import functools
import pathlib

_PACKAGE = pathlib.Path(__file__).resolve().parent
_BUILD = _PACKAGE.parents[1] / "build"
# In a wheel; in a source tree.
_PLACES = tuple(folder / "liboriel.so" for folder in (_PACKAGE / "lib", _BUILD, _BUILD / "normal"))


class Status(enum.IntEnum):
    """oriel_status of oriel.h."""

    OK = 0
    IN_PROGRESS = 1
    INVALID = 2
    MISMATCH = 3
    TIMEOUT = 4
    PEER = 5
    REVOKED = 6
    SYSTEM = 7
    UNSUPPORTED = 8
    NO_RESOURCE = 9
    AUTH = 10


# enum oriel_kind of src/core/world/record.h, from 1 on.
OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "permute",
    "barrier",
    "ragged_all_to_all",
    "gather",
    "scatter",
    "reduce",
    "scan",
    "kernel",
    "message",
)


class OrielError(RuntimeError):
    """What the library said, in one sentence; `status` is its kind."""

    def __init__(self, sentence, status):
        super().__init__(sentence)
        self.status = Status(status)


StoreSet = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
)
StoreGet = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_double,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_size_t),
)


class Store(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("ctx", ctypes.c_void_p),
        ("set", StoreSet),
        ("get", StoreGet),
    ]


class CommParams(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("process_id", ctypes.c_int),
        ("num_processes", ctypes.c_int),
        ("local_ranks", ctypes.c_int),
        ("store", ctypes.c_char_p),
        ("secret", ctypes.c_char_p),
        ("kv", ctypes.POINTER(Store)),
        ("job", ctypes.c_char_p),
        ("timeout_s", ctypes.c_double),
        ("devices", ctypes.POINTER(ctypes.c_int)),
    ]


class _Option(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("value", ctypes.c_char_p),
        ("source", ctypes.c_char_p),
        ("help", ctypes.c_char_p),
    ]


_HANDLE = ctypes.c_void_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
_INT = ctypes.c_int

# name: (result, arguments)
_PROTOTYPES = {
    "oriel_version": (ctypes.c_char_p, ()),
    "oriel_build_commit": (ctypes.c_char_p, ()),
    "oriel_status_name": (ctypes.c_char_p, (_INT,)),
    "oriel_last_error": (ctypes.c_char_p, ()),
    "oriel_option_get": (_INT, (_INT, ctypes.POINTER(_Option))),
    "oriel_place_find": (_INT, (ctypes.POINTER(_INT), ctypes.POINTER(_INT))),
    "oriel_comm_create": (_INT, (ctypes.POINTER(CommParams), _OUT)),
    "oriel_comm_destroy": (_INT, (_HANDLE,)),
    "oriel_comm_abandon": (None, (_HANDLE,)),
    "oriel_comm_check": (_INT, (_HANDLE,)),
    "oriel_comm_barrier": (_INT, (_HANDLE,)),
    "oriel_comm_size": (_INT, (_HANDLE,)),
    "oriel_comm_first_rank": (_INT, (_HANDLE,)),
    "oriel_comm_local_size": (_INT, (_HANDLE,)),
    "oriel_comm_process": (_INT, (_HANDLE,)),
    "oriel_comm_num_processes": (_INT, (_HANDLE,)),
    "oriel_comm_num_machines": (_INT, (_HANDLE,)),
    "oriel_comm_machine": (_INT, (_HANDLE, _INT)),
    "oriel_comm_share": (
        _INT,
        (_HANDLE, _INT, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_double),
    ),
    "oriel_comm_leave": (None, (_HANDLE,)),
    "oriel_comm_leaving": (_INT, (_HANDLE,)),
    "oriel_comm_quit": (None, (_HANDLE, ctypes.c_char_p)),
    "oriel_comm_refuse": (None, (ctypes.POINTER(CommParams), _INT, ctypes.c_char_p)),
    "oriel_interrupt": (None, (ctypes.c_char_p,)),
    "oriel_spread_begin": (None, (_HANDLE,)),
    "oriel_comm_awaited": (ctypes.c_int64, (_HANDLE,)),
    "oriel_ffi_attach": (_INT, (_HANDLE, ctypes.POINTER(_INT), _INT)),
    "oriel_ffi_detach": (_INT, (ctypes.c_double,)),
    "oriel_ffi_check": (_INT, ()),
    "oriel_ffi_via_check": (_INT, (_INT, _INT, _INT)),
    "oriel_ffi_kernel": (_INT, (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p)),
    "oriel_ffi_cuda_kernel": (
        _INT,
        (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t),
    ),
    "oriel_ffi_cuda_stale": (_INT, ()),
    "oriel_ffi_op": (_INT, (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p)),
    "oriel_ffi_window_create": (
        _INT,
        (_HANDLE, ctypes.POINTER(_INT), _INT, ctypes.c_uint64, _OUT),
    ),
    "oriel_ffi_window_release": (None, (_HANDLE,)),
    "oriel_ffi_window_look": (_INT, (_HANDLE, _INT, _OUT, ctypes.POINTER(ctypes.c_uint64))),
    "oriel_ffi_window_find": (
        _INT,
        (
            _HANDLE,
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.POINTER(_INT),
            ctypes.POINTER(ctypes.c_uint64),
        ),
    ),
    "oriel_ffi_reads": (_INT, ()),
    "oriel_ffi_runtime": (None, (ctypes.c_char_p,)),
    "oriel_ffi_lowered": (None, (ctypes.c_uint64,)),
}


@functools.cache
def load():
    """The library, loaded once."""
    for place in _PLACES:
        if place.exists():
            lib = ctypes.CDLL(str(place))
            break
    else:
        raise OrielError(
            f"no liboriel.so at {' or '.join(map(str, _PLACES))}: install the oriel package, or "
            "build the source tree",
            Status.SYSTEM,
        )
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    return lib


def call(name, *arguments):
    """Calls a function that returns an oriel_status; raises what it says."""
    lib = load()
    status = getattr(lib, name)(*arguments)
    if status != Status.OK:
        raise OrielError(lib.oriel_last_error().decode(), status)


def option(name):
    """The value of an ORIEL_* option, "" where it is unset."""
    lib = load()
    entry = _Option()
    index = 0
    while lib.oriel_option_get(index, ctypes.byref(entry)) == Status.OK:
        if entry.name == name.encode():
            return entry.value.decode()
        index += 1
    raise KeyError(name)


def version():
    """The version of the loaded library."""
    return load().oriel_version().decode()


def commit():
    """What the loaded library was built from."""
    return load().oriel_build_commit().decode()
