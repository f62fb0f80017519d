"""What the tests share: meshes, shard_map in one line, starting programs."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cases
import jax
import numpy as np
import oriel
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
SOAK = bool(os.environ.get("SOAK"))
FLAGS = os.environ["XLA_FLAGS"]  # of conftest.py, for 8 devices


def make_mesh(shape=(8,), names=("x",), order=None, kind=AxisType.Auto):
    """A mesh over the 8 devices, in the given order."""
    devices = np.array(jax.devices())[list(order or range(8))].reshape(shape)
    return Mesh(devices, names, axis_types=(kind,) * len(names))


def over(mesh, function, in_specs=P("x"), out_specs=P(), check_vma=True, **more):
    """function, sharded over mesh and jitted."""
    return jax.jit(
        jax.shard_map(
            function,
            mesh=mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            check_vma=check_vma,
            **more,
        )
    )


def assert_same(ours, theirs):
    """Equal trees: values and dtypes."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def assert_bits(got, expected):
    """Equal bits, but for those of a NaN."""
    got, expected = np.ascontiguousarray(got), np.ascontiguousarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if got.dtype.name not in cases.NARROW and got.dtype.kind in "fc":
        np.testing.assert_array_equal(got, expected)  # NaN is NaN, whatever its bits
        return
    if got.dtype.kind in "fV":
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(got, expected)


# ---- drawing ----------------------------------------------------------------


def examples(number, soak):
    """How many a test draws: the same ones in each run, others in each soak."""
    return settings(
        max_examples=soak if SOAK else number,
        deadline=None,
        database=None,
        derandomize=not SOAK,
        suppress_health_check=list(HealthCheck),
    )


def picker(data):
    """What cases.py draws with: one of a list, chosen by Hypothesis."""
    return lambda options: data.draw(st.sampled_from(options))


# ---- programs --------------------------------------------------------------


def find_oriel():
    """The command: of the build under test, or the installed one."""
    folders = [os.environ.get("BUILD_DIR"), ROOT / "build", ROOT / "build" / "normal"]
    for folder in folders:
        if folder and (Path(folder) / "oriel").is_file():
            return str(Path(folder) / "oriel")
    return shutil.which("oriel")


FOREIGN = ("ORIEL_", "XLA_", "JAX_", "PJRT_", "NPROC", "OMPI_", "PMIX_", "SLURM_")


def environment(devices=None, **more):
    """A clean one: no thread counts, no launcher, and no options but those of the test."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    env["JAX_PLATFORMS"] = "cpu"
    env["PYTHONPATH"] = f"{Path(oriel.__file__).parents[1]}:{PROGRAMS}"
    if devices is not None:
        env["XLA_FLAGS"] = FLAGS.replace("=8", f"={devices}", 1)
    return env | more


def run(command, timeout=240, **options):
    """(exit status, output). Nothing it started outlives it."""
    child = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )
    try:
        output, _ = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        raise AssertionError(f"still running after {timeout} s:\n{output}") from None
    return child.returncode, output


def run_each(command, environments, timeout=240):
    """One process for each environment, side by side: (exit status, output) of each."""
    with ThreadPoolExecutor(len(environments)) as pool:
        return list(pool.map(lambda env: run(command, timeout, env=env), environments))


def run_plain(program, *arguments, devices=None, timeout=240, **env):
    return run(
        [sys.executable, PROGRAMS / program, *arguments],
        timeout,
        env=environment(devices, **env),
    )


def run_processes(program, *arguments, processes, devices=1, timeout=240, **env):
    """Under `oriel run`. (exit status, output, what each process reported)."""
    command = [find_oriel(), "run", "-n", processes, "--", sys.executable, PROGRAMS / program]
    status, output = run([*command, *arguments], timeout, env=environment(devices, **env))
    reports = {}
    for process, line in re.findall(r"^\[(\d+)\] REPORT (.*)$", output, re.M):
        reports.setdefault(int(process), []).append(json.loads(line))
    return status, output, reports
