"""Compiles a person's source, once: what comes of it is kept by content, compiler,
flags and architecture."""

import functools
import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile
import warnings

from oriel._compile import nvrtc as _nvrtc
from oriel._compile import source as _source
from oriel._lib import OrielError, Status

# -ffp-contract=off: sums have the same bits on every machine.
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-Wall")
# Functions without a space are the device's: an author's helpers are plain C.
CUDA_FLAGS = ("--std=c++17", "--device-as-default-execution-space", "--fmad=false")
_MOST_LINES = 30
_UNKEPT = "oriel-kernels-"  # so begin folders of files that are not kept


def compiler():
    """The command as a list: $CC, or cc."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def for_host(source):
    """The path of the library of `source`."""
    tuned = ["-march=native"] if platform.machine() == "x86_64" else []
    command = [*compiler(), *FLAGS, *tuned, f"-I{_source.include_folder()}", "-x", "c", "-"]
    command += ["-x", "none", *source.flags]  # libraries come after what needs them
    key = [repr(command), _version(command[0]), platform.machine(), _processor()]
    return _kept(source, key, ".so", lambda draft: _run_compiler(source, command, draft))


def for_cuda(source, arch, flags=()):
    """The path of the cubin of `source` for "sm_90" and so on; needs no GPU."""
    options = [*CUDA_FLAGS, *flags, f"-I{_source.include_folder()}"]
    key = [repr(options), repr(_nvrtc.version()), arch]
    return _kept(source, key, ".cubin", lambda draft: _run_nvrtc(source, arch, options, draft))


def _kept(source, key, suffix, make):
    """The file of `key`, made where it is not there: under another name first, so that
    no process ever loads half a file."""
    digest = hashlib.sha256(repr([source.digest, source.unit(), *key]).encode()).hexdigest()
    folder = cache_folder() or pathlib.Path(tempfile.mkdtemp(prefix=_UNKEPT))
    path = folder / f"{source.path.stem}-{digest[:32]}{suffix}"
    if path.exists():
        return path
    handle, draft = tempfile.mkstemp(suffix=suffix, dir=folder)
    os.close(handle)
    try:
        make(draft)
        os.replace(draft, path)
    except BaseException:
        pathlib.Path(draft).unlink(missing_ok=True)
        release(path)
        raise
    return path


def release(path):
    """A process that has loaded a file says so: one that is not kept is needed no more."""
    if path.parent.name.startswith(_UNKEPT):
        shutil.rmtree(path.parent, ignore_errors=True)


def cache_folder():
    """$ORIEL_CACHE/kernels, or ~/.cache/oriel/kernels; None where that cannot be written, or
    others can."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    own = os.environ.get("ORIEL_CACHE")
    folder = (pathlib.Path(own) if own else pathlib.Path(base) / "oriel") / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
        # What others can write there would be loaded into this process.
        if os.access(folder, os.W_OK) and found.st_uid == os.geteuid() and not found.st_mode & 0o22:
            return folder
    except OSError:
        pass
    _warn_unkept(folder)
    return None


@functools.cache
def _warn_unkept(folder):
    warnings.warn(
        f"oriel: kernels are compiled anew in each process, as {folder} cannot be written, or "
        "others can write it; ORIEL_CACHE names another folder",
        stacklevel=2,
    )


def _version(command):
    try:
        said = subprocess.run([command, "--version"], capture_output=True, text=True)
    except OSError:
        raise OrielError(
            f"no C compiler: {command!r} cannot be run. A kernel is compiled where it runs; "
            "install one (on Debian and Ubuntu: apt install gcc libc6-dev) or name it in CC",
            Status.SYSTEM,
        ) from None
    return said.stdout


@functools.cache
def _processor():
    """What this machine's processor can do: a folder may be shared with others."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _run_compiler(source, command, draft):
    done = subprocess.run(
        [*command, "-o", draft],
        input=source.unit(),
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        raise OrielError(_complaint(source, command[0], done.stderr), Status.INVALID)


def _run_nvrtc(source, arch, options, draft):
    try:
        cubin = _nvrtc.compile(source.unit(), source.path.name, arch, options)
    except OrielError as error:
        if error.status != Status.INVALID:
            raise
        raise OrielError(
            _complaint(source, f"NVRTC for {arch}", str(error)), Status.INVALID
        ) from None
    pathlib.Path(draft).write_bytes(cubin)


def _complaint(source, command, text):
    lines = text.strip().splitlines()
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"... and {len(lines) - _MOST_LINES} lines more"]
    return f"{source.path} does not compile with {command}:\n" + "\n".join(lines)
