"""What the tests of `oriel bench` share: the command, plans, plots."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest
from oriel import bench
from oriel.bench import native, plan
from support import find_oriel

NEEDS_MPI = pytest.mark.skipif(bool(native.find_mpi()), reason=native.find_mpi() or "")
NEEDS_PLOTS = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def run_command(*words):
    folder = str(pathlib.Path(bench.__file__).parents[2])
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    command = pathlib.Path(find_oriel()).parent
    search = os.pathsep.join([str(command), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, "-m", "oriel", "bench", *map(str, words)],
        env=os.environ | {"PYTHONPATH": path, "PATH": search},
        capture_output=True,
        text=True,
        timeout=100,
    )


def make_plan(**changes):
    values = dict(
        operation="all_reduce",
        level="jax",
        processes=2,
        devices=1,
        peers=["jax"],
        sizes=[8],
        dtype="f32",
        op="sum",
    )
    return plan.Plan(**values | changes)


def check_plots(path):
    """Both endings, not empty, and what they say they are."""
    assert xml.parse(path.with_suffix(".svg")).getroot().tag.endswith("}svg")
    picture = path.with_suffix(".png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n") and len(picture) > 5000
    assert len(path.with_suffix(".svg").read_bytes()) > 5000
