"""oriel.window in jobs of several shapes: what programs read and write, and for how long it lives."""

from pathlib import Path

import pytest
import support

PROGRAMS = Path(__file__).resolve().parent / "programs"
CASES = [
    "looks",
    "dtypes",
    "arguments",
    "operands",
    "results",
    "kernels",
    "in_place",
    "loops",
    "order_refused",
    "outstanding",
    "transformations",
    "compiled",
    "donated",
    "lives",
    "many",
    "renewed",
]
# (processes, devices of each)
JOBS = [(2, 1), (2, 2), (1, 4), (4, 1)]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=JOBS, ids=lambda job: f"{job[0]}x{job[1]}")
def told(request):
    """One job for all: starting JAX takes longer than any case."""
    processes, devices = request.param
    more = {"ORIEL_TIMEOUT": "60", "ORIEL_WARN_AFTER": "1"}
    return support.run_processes(
        PROGRAMS / "windows.py", *CASES, processes=processes, devices=devices, **more
    ), processes


@pytest.mark.parametrize("case", CASES)
def test_windows(told, case):
    (_, output, reports), processes = told
    for process in range(processes):
        entries = [entry for entry in reports.get(process, []) if entry["case"] == case]
        assert entries, f"{case} came to no end on process {process}:\n{output}"
        assert entries[0]["ok"], f"process {process}: {entries[0]['text']}"
