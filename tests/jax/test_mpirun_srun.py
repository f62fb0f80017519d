"""Python processes that Open MPI's mpirun or Slurm's srun started; no variable of
oriel's is set. mpirun is the real one; srun is its environment, set by the test."""

import json
import re
import shutil
import sys

import pytest
import slurm
from support import PROGRAMS, environment, run, run_each

# JAX's devices of all processes in one mesh, and each process's own.
layouts = pytest.mark.parametrize("processes, kind", [(2, "oriel"), (3, "local")])


def assert_all_ok(processes, output):
    reports = [json.loads(text) for text in re.findall(r"REPORT ({.*?})", output)]
    assert sorted(report["rank"] for report in reports) == list(range(processes)), output
    assert all(report["ok"] and report["size"] == processes for report in reports)


@pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed (openmpi-bin)")
@layouts
def test_mpirun(processes, kind):
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    status, output = run(
        [*mpirun, "-n", processes, sys.executable, PROGRAMS / "layout.py", kind],
        env=environment(devices=1),
    )
    assert status == 0, output
    assert_all_ok(processes, output)


def step(process, count, job, **more):
    variables = slurm.step(process, count, job, **more)
    return environment(1, **{name: str(value) for name, value in variables.items()})


@layouts
def test_srun(processes, kind):
    job = slurm.fresh_job()
    results = run_each(
        [sys.executable, PROGRAMS / "layout.py", kind],
        [step(p, processes, job) for p in range(processes)],
    )
    output = "".join(output for _, output in results)
    assert all(status == 0 for status, _ in results), output
    assert_all_ok(processes, output)


def test_batch_script_is_no_step():
    """It has the variables of an allocation, but is one process."""
    env = step(0, 4, slurm.fresh_job())
    del env["SLURM_STEP_ID"]
    status, output = run([sys.executable, PROGRAMS / "layout.py", "oriel"], env=env)
    assert status == 0, output
    assert_all_ok(1, output)


@pytest.mark.parametrize(
    "variables, text",
    [
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "two"},
            'OMPI_COMM_WORLD_RANK="two" of mpirun is not a whole number from 0 to 1',
        ),
        (
            {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "2"},
            'SLURM_PROCID="2" of srun is not a whole number from 0 to 1',
        ),
    ],
    ids=["mpirun", "srun"],
)
def test_wrong_environment(variables, text):
    env = environment(**variables)
    status, output = run([sys.executable, "-c", "import oriel; oriel.init()"], env=env)
    assert status == 1
    assert output.splitlines()[-1].endswith(text)
