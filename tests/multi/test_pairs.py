"""Permutations whose members read each other's memory in pairs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

ROUNDS = 40 if job.SOAK else 2


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_pairs(processes):
    job.check(processes, "pairs", ROUNDS, one_core=True)


def check_failure(how, status, *parts, processes=4, gone=None, **options):
    """Every process is told, also those that need nothing of rank 1."""
    store = job.fresh_store()
    started = [job.Process("pairs", 1, how, process_id=p, num_processes=processes, store=store,
                           one_core=True, **options) for p in range(processes)]
    try:
        for p, process in enumerate(started):
            code, text = process.wait()
            if p == gone:
                continue
            assert code == 0 and "clean" in text.splitlines(), text
            for part in (f"ORIEL_ERR_{status} ", *parts):
                assert part in text, text
    finally:
        for process in started:
            process.end()


@pytest.mark.parametrize("call", [5, 8])
def test_reading_fails(call):
    check_failure("read", "SYSTEM", "rank 1 could not read what others send",
                  f"call {call} of memory_read failed, as ORIEL_FAULT asks",
                  fault=f"memory_read:{call}=fail@1")


def test_no_memory():
    check_failure("memory", "SYSTEM", "rank 1: out of memory for", "bytes of send")


def test_death_of_a_source():
    check_failure("kill", "PEER", "process 1", gone=1)


def test_read_too_late():
    """What is read after its owner has given up is no result."""
    check_failure("late", "SYSTEM", "rank 0 could not read what others send", processes=3,
                  fault="operation:2=delay:0.2@2,memory_read:4=fail@0,memory_read:4=delay:0.6@1")
