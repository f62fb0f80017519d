"""Compiles a person's source for the host, once: the library is kept by content,
compiler, flags and architecture."""

import hashlib
import os
import pathlib
import platform
import shlex
import subprocess
import tempfile

from oriel import _source
from oriel._lib import OrielError, Status

# -ffp-contract=off: sums have the same bits on every machine.
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-Wall")
_MOST_LINES = 30


def compiler():
    """The command as a list: $CC, or cc."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def for_host(source, flags=()):
    """The path of the library of `source`."""
    command = [*compiler(), *FLAGS, *flags, f"-I{_source.include_folder()}"]
    command += [f"-D{name}={value}" for name, value in source.defines]
    parts = [source.digest, source.unit(), repr(command), _version(command[0]), platform.machine()]
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    folder = cache_folder()
    library = folder / f"{source.path.stem}-{key[:32]}.so"
    if not library.exists():
        _compile(source, command, folder, library)
    return library


def cache_folder():
    """~/.cache/oriel/kernels; where that cannot be written, a folder of this process."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(base) / "oriel" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.geteuid():
            return folder
    except OSError:
        pass
    return _own_folder()


def _own_folder():
    global _temporary

    if _temporary is None:
        _temporary = tempfile.TemporaryDirectory(prefix="oriel-kernels-")
    return pathlib.Path(_temporary.name)


_temporary = None


def _version(command):
    try:
        said = subprocess.run([command, "--version"], capture_output=True, text=True)
    except OSError:
        raise OrielError(
            f"no C compiler: {command!r} cannot be run. A kernel is compiled on the machine it runs "
            "on; install one (on Debian and Ubuntu: apt install gcc libc6-dev) or name it in CC",
            Status.SYSTEM,
        ) from None
    return said.stdout


def _compile(source, command, folder, library):
    """Under another name first, so that no process ever loads half a file."""
    handle, draft = tempfile.mkstemp(suffix=".so", dir=folder)
    os.close(handle)
    try:
        done = subprocess.run(
            [*command, "-x", "c", "-", "-o", draft],
            input=source.unit(),
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            raise OrielError(_complaint(source, command[0], done.stderr), Status.INVALID)
        os.replace(draft, library)
    finally:
        pathlib.Path(draft).unlink(missing_ok=True)


def _complaint(source, command, text):
    lines = text.strip().splitlines()
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"... and {len(lines) - _MOST_LINES} lines more"]
    return f"{source.path} does not compile with {command}:\n" + "\n".join(lines)
