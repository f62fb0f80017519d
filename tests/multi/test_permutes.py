"""Permutations where ranks share cores. Where they may not read each other's memory, large ones
go by the lane, too."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

ROUNDS = 40 if job.SOAK else 2


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_permutes(processes):
    job.check(processes, "permutes", ROUNDS, one_core=True, direct=0)


def test_death_of_a_source():
    """Every process is told, also those that need nothing of rank 1."""
    store = job.fresh_store()
    started = [
        job.Process(
            "permutes",
            1,
            "kill",
            process_id=p,
            num_processes=4,
            store=store,
            one_core=True,
            direct=0,
        )
        for p in range(4)
    ]
    try:
        for p, process in enumerate(started):
            code, text = process.wait()
            if p == 1:
                continue
            assert code == 0 and "clean" in text.splitlines(), text
            assert "ORIEL_ERR_PEER " in text and "process 1" in text, text
    finally:
        for process in started:
            process.end()
