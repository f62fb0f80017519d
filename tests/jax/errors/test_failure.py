"""A process dies, leaves, or asks for something else: an error on the others,
with names, and never a hang."""

import os
import re

import pytest
from support import SOAK, run_processes

pytestmark = pytest.mark.timeout(300)
DEATHS = [  # which process, in the midst of what
    ("local", 0, "all_reduce", "all_reduce sum of 4800 bytes of f32"),
    ("local", 1, "all_gather", "all_gather of 4800 bytes of f32"),
    ("local", 2, "broadcast", "broadcast of 4800 bytes of f32 from root 0"),
    ("local", 1, "reduce_scatter", "reduce_scatter sum of 1600 bytes of f32"),
    ("local", 0, "all_to_all", "all_to_all of 1600 bytes of f32"),
    ("local", 1, "permute", "permute of 4800 bytes of f32"),
    ("local", 0, "barrier", "barrier"),
    ("local", 2, "ragged_all_to_all", "ragged_all_to_all of rows of 4 bytes of f32"),
    ("global", 2, "all_reduce", "all_reduce sum of 4800 bytes of f32"),
]
# One of each way to go; that every operation notices is tests/fault's, and the soak's.
if not SOAK:
    DEATHS = [d for d in DEATHS if d[2] in ("all_reduce", "broadcast", "ragged_all_to_all")]
ROUNDS = 5 if SOAK else 1
# Seconds until an error is there: a busy machine may pause a process for some, but
# it is less than the ten that a process gets which may have work under way.
SOON = 8.0


def is_alive(pid):
    return os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.parametrize(
    "mode, victim, operation, asked", DEATHS, ids=["-".join(map(str, d[:3])) for d in DEATHS]
)
def test_killed_process(mode, victim, operation, asked, round, record_property):
    step = 20 + 37 * round
    record_property("step", step)
    status, output, reports = run_processes(
        "die.py", victim, step, mode, operation, processes=3, ORIEL_TIMEOUT="60"
    )
    assert status == 128 + 9, output
    died = reports.pop(victim)[0]["died"]
    assert len(reports) == 2, output
    for rank, (raised, checked) in reports.items():
        assert raised["raised"] - died < SOON
        text = raised["text"]
        assert asked in text
        assert f"on rank {rank} (process {rank})" in text
        assert f"rank {victim} is missing" in text and f"process {victim}" in text
        assert f"process {victim}" in checked["check"] and checked["status"] == "REVOKED"
        assert not is_alive(raised["pid"])
    assert "SIGKILL" not in output  # the survivors ended by themselves


def test_killed_coordinator():
    """JAX ends the others with its coordinator; the reason is printed all the same."""
    status, output, reports = run_processes("die.py", 0, 20, "global", processes=2)
    assert status == 128 + 9, output
    assert "process 0" in output


def test_process_that_raises():
    status, output, reports = run_processes("again.py", 1, "raise", "global", processes=3)
    assert status == 1, output  # of the process that failed first, whichever ended before it
    assert re.search(r"oriel run: process 1 .* exited with code 1", output)
    left = reports[1][1]["left"]
    for process in (0, 2):
        entry = reports[process][1]
        assert entry["raised"] - left < SOON
        assert "rank 1 is missing" in entry["text"]
        assert "its program was ended by RuntimeError: on purpose" in entry["text"]
    assert "SIGKILL" not in output


def test_process_that_quits():
    """It may have work under way, so the others get their error after three seconds."""
    status, output, reports = run_processes("again.py", 1, "quit", "local", processes=2)
    assert status == 3, output
    assert reports[0][1]["raised"] - reports[1][1]["left"] < SOON
    assert "rank 1 is missing" in reports[0][1]["text"]
    assert "has left the comm: its program has ended" in reports[0][1]["text"]
