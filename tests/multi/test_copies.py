"""Every way to copy the data of large operations gives the same results."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

CALLS = 50 if job.SOAK else 5


@pytest.mark.parametrize("processes, local_ranks", [(2, 1), (3, 1), (2, 2)])
def test_copies(processes, local_ranks):
    job.check(processes, "copies", local_ranks, CALLS)


@pytest.mark.parametrize(
    "options", [{"direct": 0}, {"fault": "memory_read:1=fail@1"}], ids=["staged", "not-allowed"]
)
def test_no_reading(options):
    """Asked not to, or where the system refuses it, nobody reads another's memory."""
    job.check(2, "copies", 1, CALLS, 1, **options)


def test_reading_fails():
    """The operation fails on all, with the sentence of the one that could not read."""
    output = job.run(3, "copies", 1, CALLS, fault="memory_read:7=fail@1")
    for process in range(3):
        lines = "\n".join(output.lines(process))
        assert "rank 1 could not read what others send" in lines, output.text
        assert "call 7 of memory_read failed, as ORIEL_FAULT asks" in lines, output.text
