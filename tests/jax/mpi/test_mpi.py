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
