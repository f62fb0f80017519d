"""One process with 8 CPU devices for all tests of this folder. Tests of several
processes, and of how a program starts, run the scripts in programs/."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

sys.path.append(str(Path(__file__).resolve().parent / "programs"))  # for cases.py
sys.path.append(str(Path(__file__).resolve().parent / "errors" / "programs"))  # for renewals.py
sys.path.append(str(ROOT / "tests" / "support"))  # for slurm.py
if importlib.util.find_spec("oriel") is None:
    sys.path.insert(0, str(ROOT / "python"))
# What takes time here is compiling. With full counts the code is what users get.
QUICK = "" if os.environ.get("SOAK") else " --xla_backend_optimization_level=0"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8" + QUICK
os.environ["JAX_ENABLE_X64"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / "build" / "cache"))  # of kernels

import oriel  # noqa: E402  (before JAX makes its devices)
from oriel._compile import source as _source  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def world():
    oriel.init()
    yield
    oriel.finalize()


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """Host functions: tests/kernels/host_op.c."""
    return _build(tmp_path_factory, "host_op.c")


@pytest.fixture(scope="session")
def memory_library(tmp_path_factory):
    """Host functions: tests/kernels/memory_op.c."""
    return _build(tmp_path_factory, "memory_op.c")


def _build(tmp_path_factory, source):
    built = tmp_path_factory.mktemp("op") / "libmine.so"
    subprocess.run(
        [
            "cc",
            "-shared",
            "-fPIC",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-I{_source.include_folder()}",
            ROOT / "tests" / "kernels" / source,
            "-o",
            built,
        ],
        check=True,
    )
    return built
