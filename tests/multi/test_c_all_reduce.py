"""all_reduce in C between processes, each with one or more ranks."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

LAYOUTS = [(1, 1), (2, 1), (3, 1), (5, 1), (8, 1), (4, 2), (2, 3), (1, 8)]
SMALL = {"chunk": "1K", "staging": "256K"}
CALLS = 2000 if job.SOAK else 150


@pytest.mark.parametrize("processes, local_ranks", LAYOUTS)
@pytest.mark.parametrize("options", [{}, SMALL, {"spin": 0}], ids=["plain", "small", "no-spin"])
def test_values(processes, local_ranks, options):
    job.check(processes, "values", local_ranks, CALLS // processes, **options)


def test_thousands_of_calls():
    job.check(2, "values", 1, 20000 if job.SOAK else 3000)


@pytest.mark.parametrize("processes, local_ranks", [(2, 1), (4, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize("options", [{}, SMALL], ids=["plain", "small"])
def test_groups(processes, local_ranks, options):
    job.check(processes, "groups", local_ranks, 200 if job.SOAK else 25, **options)


def test_same_bits_in_every_layout():
    """8 ranks in several layouts and modes, several runs: one result."""
    seen = set()
    for processes, options in [
        (8, {}),
        (4, {}),
        (2, SMALL),
        (1, {}),
        (1, {"direct": 0}),
        (1, {"direct": 0, "chunk": "3333"}),
        (8, SMALL),
        (8, {}),
    ]:
        lines = job.check(processes, "bits", 8 // processes, **options).lines()
        seen.update(lines)
        assert len(lines) == 8 * 7
    assert len(seen) == 7, "\n".join(sorted(seen))


@pytest.mark.parametrize("processes, local_ranks", [(2, 1), (1, 2)])
def test_large(processes, local_ranks):
    """Many times the staging memory; in a soak more than 32 bits can count."""
    job.check(processes, "large", 1100 if job.SOAK else 96, local_ranks, limit=300)
    job.check(processes, "large", 5, local_ranks, **SMALL)


def test_signals():
    job.check(3, "signals", 5, 300)


def test_forks():
    job.check(3, "forks")
