"""The 1st, 2nd, 3rd ... system call of one process fails, until none is left to fail:
no leak, no wait, one status for all."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job
import slurm

# Fewer calls than this, and the sweep did not reach what it is for. To destroy is to end
# the watch thread, which is told and drops its robust list; a process alone has none, and
# nothing is left that could fail.
LEAST = {"create": 10, "use": 8, "windows": 15, "destroy": 2}


def check_swept(text, phase, processes, least=None):
    least = LEAST[phase] if least is None else least
    counts = {int(n) for n in re.findall(r"swept (\d+)", text)}
    assert len(counts) == 1 and counts.pop() >= least, text
    assert len(re.findall(r"swept \d+", text)) == processes, text


@pytest.mark.parametrize("phase", LEAST)
@pytest.mark.parametrize(
    "processes, victim, local_ranks",
    [(1, 0, 3), (2, 0, 1), (2, 1, 1), (3, 0, 1), (3, 1, 1), (3, 2, 1), (2, 0, 2), (2, 1, 2)],
)
def test_sweep(phase, processes, victim, local_ranks):
    # A read of another's memory that fails is the end of its operation: see below.
    options = {"direct": 0} if phase == "use" and processes > 1 else {}
    output = job.check(processes, "sweep", phase, victim, local_ranks, **options)
    alone = processes == 1 and phase == "destroy"
    check_swept(output.text, phase, processes, 0 if alone else None)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("phase, options", [("read", {}), ("sleep", {"spin": 0})])
def test_sweep_of_one_call(phase, options, victim):
    """A read of another's memory that fails is the end of its operation; a wait that does
    not sleep does no harm."""
    output = job.check(3, "sweep", phase, victim, **options)
    check_swept(output.text, phase, 3, 1)


def sweep_create(victim, place):
    """By processes that are told their place. Process 0 holds the store; while it is the one
    that fails, the others may learn no more than that it did not work."""
    processes = [
        job.Process(
            "sweep",
            "create",
            victim,
            1,
            int(victim == 0),
            secret="sweep",
            init_timeout=2,
            **place(p),
        )
        for p in range(3)
    ]
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


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("store", ["unix", "tcp"])
def test_sweep_without_a_launcher(victim, store):
    address = job.fresh_store() if store == "unix" else f"127.0.0.1:{job.free_port()}"
    sweep_create(victim, lambda p: {"process_id": p, "num_processes": 3, "store": address})


@pytest.mark.parametrize("victim", [0, 1])
def test_sweep_of_a_job(victim):
    """The store that processes of srun or mpirun find by their job."""
    number = slurm.fresh_job()
    sweep_create(victim, lambda p: {"env": slurm.step(p, 3, number)})
