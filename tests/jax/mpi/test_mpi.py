"""What MPI programs do: the calls that MPI has, of programs that differ between ranks."""

from pathlib import Path

import pytest
import support

PROGRAMS = Path(__file__).resolve().parent / "programs"

pytestmark = pytest.mark.timeout(300)


def check(program, processes):
    keywords = {"ORIEL_TIMEOUT": "60", "ORIEL_WARN_AFTER": "1"}
    status, output, reports = support.run_processes(
        PROGRAMS / program, processes=processes, **keywords
    )
    assert status == 0 and len(reports) == processes, output
    assert all(report == [{"ok": True}] for report in reports.values()), output


def test_rooted_over_the_world():
    check("rooted.py", 3)


@pytest.mark.parametrize("processes", [2, 3])
def test_messages(processes):
    check("messages.py", processes)


LOST = {
    "shape": ("for message of 12 bytes of f32 at __main__:", "'message', 3xf32)", "3x1xf32)"),
    "late": ("rank 1 (process 1) did not come to send within",),
    "taken": ("process 1", "waits for it in message of 4194304 bytes of f32"),
    "turns": ("(tangent) (transposed)', 3xf32, 1 of 2 transposed)", "3xf32, 1 of 1 transposed)"),
}


@pytest.mark.parametrize("how", LOST)
def test_messages_that_do_not_arrive(how):
    """Both ranks are told, rank 0 in finalize if not before."""
    _, output, reports = support.run_processes(
        PROGRAMS / "lost.py", how, processes=2, ORIEL_TIMEOUT="3"
    )
    assert len(reports) == 2, output
    for word in LOST[how]:
        assert word in reports[0][0]["text"], output
    assert reports[1][0]["text"], output


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_names_of_mpi4jax(processes):
    check("mpi_names.py", processes)
