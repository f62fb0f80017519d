"""What MPI programs do: the calls that MPI has, of programs that differ between ranks."""

from pathlib import Path

import pytest
import support

PROGRAMS = Path(__file__).resolve().parent / "programs"

pytestmark = pytest.mark.timeout(300)


def check(program, processes, *arguments):
    keywords = {"ORIEL_TIMEOUT": "60", "ORIEL_WARN_AFTER": "1"}
    status, output, reports = support.run_processes(
        PROGRAMS / program, *arguments, processes=processes, **keywords
    )
    assert status == 0 and len(reports) == processes, output
    assert all(report == [{"ok": True}] for report in reports.values()), output


def test_rooted_over_the_world():
    check("rooted.py", 3)


@pytest.mark.parametrize("processes", [2, 3] if support.SOAK else [3])
def test_messages(processes):
    check("messages.py", processes)


@pytest.mark.parametrize("processes", [2, 3, 4] if support.SOAK else [2, 3])
def test_messages_as_on_gpus(processes):
    check("messages.py", processes, "permutes")


LOST = {
    "shape": ("for message of 12 bytes of f32 at __main__:", "'message', 3xf32)", "3x1xf32)"),
    "late": ("rank 1 (process 1) did not come to send within",),
    "taken": ("process 1", "waits for it in message of 4194304 bytes of f32"),
    "turns": ("(tangent) (transposed)', 3xf32, 1 of 2 transposed)", "3xf32, 1 of 1 transposed)"),
    "both": ("for message of 12 bytes of f32 at __main__:", "'message', 3xf32)", "3x1xf32)"),
    "half": ("rank 1 (process 1) did not come to receive within",),
}


AS_ON_GPUS = {
    "shape": ("12 bytes of f32", "(tag 'message', 3xf32, from rank 0 to 1)", "3x1xf32, from"),
    "late": ("rank 1 (process 1) did not come within",),
    "both": ("rank 1 is missing", "(tag 'message', 3xf32, both ways)"),
    "first": ("from rank 0 to 1)", "from rank 1 to 0)"),
    "mixed": ("3xf32, both ways)", "3xf32, from rank 1 to 0)"),
}


@pytest.mark.parametrize("arguments, lost", [((), LOST), (("permutes",), AS_ON_GPUS)])
def test_messages_that_do_not_arrive(arguments, lost):
    """Both ranks are told, rank 0 in finalize if not before."""
    status, output, reports = support.run_processes(
        PROGRAMS / "lost.py", *arguments, processes=2, ORIEL_TIMEOUT="3"
    )
    assert status == 0 and len(reports) == 2, output
    for rank, told in reports.items():
        assert [report["how"] for report in told] == list(lost), output
        assert all(report["text"] for report in told), output
        for report in told:
            for word in lost[report["how"]] if rank == 0 else ():
                assert word in report["text"], output


@pytest.mark.parametrize("processes", [2, 3, 4] if support.SOAK else [2, 4])
def test_names_of_mpi4jax(processes):
    check("mpi_names.py", processes)
