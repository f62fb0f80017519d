"""Where and with what a result was measured."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
import sys

import oriel
from oriel import _lib

_ROOT = pathlib.Path(__file__).resolve().parents[3]


def _commit():
    """That of the library, which its build has noted; -dirty also where the Python code around
    it has been changed since."""
    commit = _lib.commit()
    if commit.endswith("-dirty") or not _is_changed():
        return commit
    return f"{commit}-dirty"


def _is_changed():
    # An installed package may lie inside somebody else's repository.
    if not (_ROOT / "include" / "oriel" / "oriel.h").exists():
        return False
    command = ["git", "-C", _ROOT, "diff", "--quiet", "HEAD", "--", "python"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 1
    except OSError:
        return False


def _cpu_model():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.+)$", info, re.M)
    return found.group(1) if found else platform.machine()


def _memory_gib():
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1)


def _scheduling():
    """Real-time priority hides other work, so a result has to say that it had it."""
    policy = os.sched_getscheduler(0)
    names = [name for name in dir(os) if name.startswith("SCHED_")]
    return next((name for name in names if getattr(os, name) == policy), str(policy))


def describe():
    """Call it before measuring: it tells how busy the machine was with other work."""
    return {
        "commit": _commit(),
        "version": oriel.version(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": _memory_gib(),
            "kernel": platform.release(),
            "load": round(os.getloadavg()[0], 2),
            "scheduling": _scheduling(),
        },
        "jax": importlib.metadata.version("jax"),
        "python": ".".join(map(str, sys.version_info[:3])),
    }
