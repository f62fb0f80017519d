"""Every operation in C between processes, each with one or more ranks."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

LAYOUTS = [(1, 1), (2, 1), (3, 1), (5, 1), (4, 2), (2, 3)]
SMALL = {"chunk": "1K", "staging": "256K"}
CALLS = 4000 if job.SOAK else 300


@pytest.mark.parametrize("processes, local_ranks", LAYOUTS)
@pytest.mark.parametrize("options", [{}, SMALL, {"spin": 0}], ids=["plain", "small", "no-spin"])
def test_family(processes, local_ranks, options):
    job.check(processes, "family", local_ranks, CALLS // processes, **options)


@pytest.mark.parametrize(
    "processes, local_ranks, options",
    [
        (2, 1, {}),
        (2, 2, {}),
        (2, 1, {"one_core": True}),
        (3, 1, {"one_core": True}),
        (8, 1, {"one_core": True}),
        (1, 5, {"direct": 0}),
        (3, 1, {"direct": 0}),
    ],
)
def test_around_lanes(processes, local_ranks, options):
    """Lanes have more room where ranks share cores."""
    job.check(processes, "family", local_ranks, 0, 1, **options)
