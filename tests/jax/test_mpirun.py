"""Python processes that Open MPI's mpirun started; no variable of oriel's is set."""

import json
import re
import shutil
import sys

import pytest
from support import PROGRAMS, environment, run


@pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed (openmpi-bin)")
@pytest.mark.parametrize("processes, kind", [(2, "oriel"), (4, "local")])
def test_mpirun(processes, kind):
    """JAX's devices of all processes in one mesh, and each process's own."""
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    status, output = run(
        [*mpirun, "-n", processes, sys.executable, PROGRAMS / "layout.py", kind],
        env=environment(devices=1),
    )
    assert status == 0, output
    reports = [json.loads(text) for text in re.findall(r"REPORT ({.*?})", output)]
    assert sorted(report["rank"] for report in reports) == list(range(processes)), output
    assert all(report["ok"] and report["size"] == processes for report in reports)


def test_wrong_environment():
    env = environment(OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="two")
    status, output = run([sys.executable, "-c", "import oriel; oriel.init()"], env=env)
    assert status == 1
    assert output.splitlines()[-1].endswith(
        'OMPI_COMM_WORLD_RANK="two" of mpirun is not a whole number from 0 to 1'
    )
