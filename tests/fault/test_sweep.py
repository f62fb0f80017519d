"""The 1st, 2nd, 3rd ... system call of one process fails, until none is left to fail:
no leak, no wait, one status for all."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

# Fewer calls than this, and the sweep did not reach what it is for.
LEAST = {"create": 10, "use": 8, "destroy": 0}


def check_swept(text, phase, processes):
    counts = {int(n) for n in re.findall(r"swept (\d+)", text)}
    assert len(counts) == 1 and counts.pop() >= LEAST[phase], text
    assert len(re.findall(r"swept \d+", text)) == processes, text


@pytest.mark.parametrize("phase", LEAST)
@pytest.mark.parametrize("processes, victim, local_ranks",
                         [(1, 0, 3), (2, 0, 1), (2, 1, 1), (3, 0, 1), (3, 1, 1), (3, 2, 1),
                          (2, 0, 2), (2, 1, 2)])
def test_sweep(phase, processes, victim, local_ranks):
    output = job.check(processes, "sweep", phase, victim, local_ranks)
    check_swept(output.text, phase, processes)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("store", ["unix", "tcp"])
def test_sweep_without_a_launcher(victim, store):
    """Process 0 holds the store; while it is the one that fails, the others may learn
    no more than that it did not work."""
    address = job.fresh_store() if store == "unix" else f"127.0.0.1:{job.free_port()}"
    processes = [job.Process("sweep", "create", victim, 1, 1, process_id=p, num_processes=3,
                             store=address, secret="sweep", init_timeout=2)
                 for p in range(3)]
    try:
        texts = []
        for process in processes:
            status, text = process.wait()
            assert status == 0, text
            texts.append(text)
        check_swept("".join(texts), "create", 3)
    finally:
        for process in processes:
            process.end()
