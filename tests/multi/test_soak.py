"""Long runs of C programs whose results are compared with an exact reference."""

import os
import random
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

SEED = int(os.environ.get("SEED") or random.randrange(1 << 30))
SECONDS = float(os.environ.get("ORIEL_TEST_SOAK") or (210 if job.SOAK else 2.5))
SMALL = {"chunk": "1K", "staging": "256K"}


@pytest.mark.parametrize(
    "processes, ranks, options",
    [(2, 1, {}), (4, 1, SMALL), (2, 2, {})],
    ids=["2x1", "4x1-small", "2x2"],
)
def test_soak(processes, ranks, options, record_property):
    """Random operations, sizes, groups and delays; to replay, use what it printed last."""
    print(f"SEED={SEED}")
    output = job.check(
        processes,
        "soak",
        "--seconds",
        SECONDS,
        "--seed",
        SEED,
        "--ranks",
        ranks,
        limit=SECONDS + job.LIMIT,
        **options,
    )
    record_property("seed", SEED)
    record_property("seconds", SECONDS)
    record_property("operations", int(re.search(r"(\d+) operations", output.text).group(1)))


@pytest.mark.parametrize("processes, ranks", [(3, 1), (4, 1), (2, 2)])
def test_windows(processes, ranks, record_property):
    """In an order that is drawn, of two comms at once."""
    print(f"SEED={SEED}")
    steps = 10000 if job.SOAK else 1500
    output = job.check(processes, "random_windows", steps, SEED, ranks, windows="1G")
    record_property("seed", SEED)
    record_property("steps", steps)
    assert int(re.search(r"(\d+) windows", output.text).group(1)) > steps / 20


def test_replay():
    """The part of a run from an epoch on is the same run: what is drawn depends on the
    number of the operation, not on what came before."""
    for begin in (0, 400):
        output = job.check(3, "soak", "--seed", SEED, "--from", begin, "--until", 1000)
        assert f"{1000 - begin} operations" in output.text


@pytest.mark.parametrize(
    "processes, ranks, options",
    [(4, 1, {}), (3, 1, SMALL), (2, 2, {})],
    ids=["4x1", "3x1-small", "2x2"],
)
def test_nothing_lapped(processes, ranks, options):
    job.check(processes, "laps", ranks, 10000, 1000, **options)
