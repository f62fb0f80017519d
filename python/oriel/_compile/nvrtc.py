"""NVRTC, opened at run time: compiles CUDA C++ for a GPU without nvcc."""

import ctypes
import functools
import pathlib
import re

from oriel import _wheels
from oriel._lib import OrielError, Status

_VERSIONS = (13, 12)
_WHEELS = ("cu13/lib", "cuda_nvrtc/lib")
_SUCCESS, _COMPILATION = 0, 6


@functools.cache
def load():
    """(library, (major, minor)); an error that says where it was looked for."""
    tried = []
    for place in _places():
        try:
            lib = ctypes.CDLL(str(place))
        except OSError:
            tried.append(str(place))
            continue
        lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return lib, (major.value, minor.value)
    raise OrielError(
        "NVRTC, which compiles kernels for GPUs, is not here; pip install nvidia-cuda-nvrtc. "
        f"Looked for {', '.join(tried)}",
        Status.UNSUPPORTED,
    )


def _places():
    yield from _wheels.files(_WHEELS, "libnvrtc.so.*")
    for version in _VERSIONS:
        yield f"libnvrtc.so.{version}"
        yield f"/usr/local/cuda/lib64/libnvrtc.so.{version}"


def find():
    """The file of NVRTC in NVIDIA's wheels, or None."""
    return next((str(place) for place in _places() if isinstance(place, pathlib.Path)), None)


def version():
    return load()[1]


def compile(text, name, arch, options=()):
    """The cubin of `text` for `arch` ("sm_90"). What is wrong with it is the error."""
    lib, _ = load()
    program = ctypes.c_void_p()
    _check(
        lib,
        lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None),
    )
    try:
        words = [f"--gpu-architecture={arch}", *options]
        array = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        status = lib.nvrtcCompileProgram(program, len(words), array)
        if status == _COMPILATION:
            raise OrielError(_log(lib, program), Status.INVALID)
        _check(lib, status)
        return _get(lib, program, "CUBIN")
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def _check(lib, status):
    if status != _SUCCESS:
        raise OrielError(f"NVRTC: {lib.nvrtcGetErrorString(status).decode()}", Status.SYSTEM)


def _get(lib, program, what):
    size = ctypes.c_size_t()
    _check(lib, getattr(lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(lib, getattr(lib, f"nvrtcGet{what}")(program, text))
    return text.raw


def _log(lib, program):
    """As C compilers write it: file:line: error, so that editors find the place."""
    log = _get(lib, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
    return re.sub(r"^(\S.*?)\((\d+)\): ", r"\1:\2: ", log, flags=re.M)
