"""How C processes find each other, in a job and by hand; windows; start and end."""

import os
import re
import socket
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

SECRET = "what only the job knows"
OPERANDS = 400 if job.SOAK else 40


def start_all(n, store="", secret="", job_name="", folder="", ids=None, **options):
    ids = range(n) if ids is None else ids
    return [job.Process("by_hand", p, n, store, secret, job_name, folder, **options) for p in ids]


def results(processes):
    """The last line of each: status and sentence."""
    found = []
    for process in processes:
        status, text = process.wait()
        assert status == 0, text
        found.append(text.strip().splitlines()[-1])
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- windows, many comms, many processes ------------------------------------------


@pytest.mark.parametrize("processes, local_ranks", [(1, 1), (2, 1), (4, 1), (3, 2)])
def test_windows(processes, local_ranks):
    job.check(processes, "windows", local_ranks)


@pytest.mark.parametrize("freed", [0, 1])
@pytest.mark.parametrize("processes, local_ranks", [(2, 1), (3, 2)])
def test_kernels_on_windows(processes, local_ranks, freed):
    job.check(processes, "kernel_windows", local_ranks, freed)


@pytest.mark.parametrize("direct", [0, 1])
@pytest.mark.parametrize("processes, local_ranks", [(1, 1), (2, 1), (4, 1), (2, 2)])
def test_operands_in_windows(processes, local_ranks, direct):
    job.check(processes, "operands", local_ranks, OPERANDS, direct=direct)


@pytest.mark.parametrize("options", [{"chunk": "1K", "staging": "256K"}, {"one_core": True}])
def test_operands_in_windows_by_small_steps(options):
    job.check(3, "operands", 1, OPERANDS // 10, direct=0, **options)


@pytest.mark.parametrize("how", ["freed", "past"])
def test_operands_in_no_window(how):
    job.check(3, "operands", 1, 0, how)


def test_kill_with_operands_in_windows():
    """Rank 1 dies in a call whose data the others may have read by then."""
    common = {"num_processes": 4, "store": job.fresh_store()}
    started = [job.Process("operands", 1, 0, "kill", process_id=p, **common) for p in range(4)]
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


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_comm_after_comm(processes):
    job.check(processes, "lifecycle", 200 if processes < 4 else 50)


def test_64_processes(record_property):
    begun = time.monotonic()
    output = job.check(64, "lifecycle", 1)
    seconds = time.monotonic() - begun
    assert len(output.lines()) == 64
    record_property("seconds", round(seconds, 2))
    assert seconds < 30 * job.slowness()


@pytest.mark.parametrize("arenas", [("1M", "64M"), ("64M", "1M")])
def test_arenas_that_differ(arenas):
    """Kernels between processes share the arena that the lead laid out."""
    common = {"num_processes": 2, "store": job.fresh_store()}
    processes = [
        job.Process("litmus_processes", 2, 2, process_id=p, arena=arena, **common)
        for p, arena in enumerate(arenas)
    ]
    ends = [process.wait() for process in processes]
    assert [status for status, _ in ends] == [0, 0], ends


@pytest.mark.parametrize(
    "name, values",
    [
        ("staging", ("256K", "64M")),
        ("staging", ("64M", "256K")),
        ("chunk", ("1K", "128K")),
        ("direct", ("0", "1")),
        ("spin", ("0", "100")),
    ],
)
def test_options_that_differ(name, values):
    """What lays out memory or chooses a way is the lead's, or each process's own matter."""
    common = {"num_processes": 2, "store": job.fresh_store()}
    processes = [
        job.Process("family", 2, 100, process_id=p, **common, **{name: value})
        for p, value in enumerate(values)
    ]
    ends = [process.wait() for process in processes]
    assert [status for status, _ in ends] == [0, 0], ends


def test_teams_that_differ():
    """Kernels count on one number of threads: both values are named, on all."""
    common = {"num_processes": 3, "store": job.fresh_store()}
    processes = [job.Process("by_hand", process_id=p, team=4 - p % 2, **common) for p in range(3)]
    for line in results(processes):
        assert line == (
            "ORIEL_ERR_MISMATCH ORIEL_TEAM is 4 on process 0 and 3 on process 1: set it alike on all"
        )


# ---- by hand ---------------------------------------------------------------------


@pytest.mark.parametrize("spread", {1, min(2, len(os.sched_getaffinity(0)))})
def test_bound_to_cores(spread):
    job.check(2, "bound", spread)


def test_unix_store():
    assert results(start_all(3, job.fresh_store())) == ["ORIEL_OK"] * 3


def test_unix_store_with_secret():
    assert results(start_all(2, job.fresh_store(), SECRET)) == ["ORIEL_OK"] * 2


def test_tcp_store():
    assert results(start_all(3, f"127.0.0.1:{free_port()}", SECRET)) == ["ORIEL_OK"] * 3


def test_lead_comes_last():
    store = job.fresh_store()
    others = start_all(3, store, ids=[2, 1])
    assert results(others + start_all(3, store, ids=[0])) == ["ORIEL_OK"] * 3


def test_from_the_environment():
    store = job.fresh_store()
    processes = [
        job.Process("by_hand", process_id=p, num_processes=2, store=store, secret=SECRET)
        for p in range(2)
    ]
    assert results(processes) == ["ORIEL_OK"] * 2


def test_store_of_the_caller(tmp_path):
    assert results(start_all(4, folder=tmp_path)) == ["ORIEL_OK"] * 4


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_wrong_secret(kind):
    """The one without the secret is refused at once; those with it wait for it."""
    store = job.fresh_store() if kind == "unix" else f"127.0.0.1:{free_port()}"
    right = start_all(2, store, SECRET, ids=[0], init_timeout=3)
    wrong = start_all(2, store, "a guess", ids=[1])
    begun = time.monotonic()
    (line,) = results(wrong)
    assert line.startswith("ORIEL_ERR_AUTH") and "ORIEL_SECRET" in line
    assert time.monotonic() - begun < 10 * job.slowness()
    (line,) = results(right)
    assert line.startswith("ORIEL_ERR_TIMEOUT") and "process 1" in line


def test_tcp_without_secret():
    for line in results(start_all(2, f"127.0.0.1:{free_port()}")):
        assert line.startswith("ORIEL_ERR_INVALID") and "secret" in line


def test_no_store():
    for line in results(start_all(2)):
        assert line.startswith("ORIEL_ERR_INVALID") and "ORIEL_STORE" in line


def test_one_process_missing():
    """All who came are told in time who did not."""
    begun = time.monotonic()
    lines = results(start_all(4, job.fresh_store(), ids=[0, 1, 3], init_timeout=3))
    assert time.monotonic() - begun < 15 * job.slowness()
    for line in lines:
        assert line.startswith("ORIEL_ERR_TIMEOUT") and "process 2" in line, lines


def test_lead_missing():
    for line in results(start_all(3, job.fresh_store(), ids=[1, 2], init_timeout=1)):
        assert line.startswith("ORIEL_ERR_TIMEOUT") and "process 0" in line


def test_counts_differ():
    """num_processes is 2 on one and 3 on another."""
    store = job.fresh_store()
    processes = start_all(2, store, ids=[0]) + start_all(3, store, ids=[1])
    for line in results(processes):
        assert re.match("ORIEL_ERR_MISMATCH .*num_processes is 2 .* 3 ", line), line


def test_some_too_many():
    """Processes 2 to 4 of 5 meet a job of 2: they fail, the job does not."""
    store = job.fresh_store()
    lead = start_all(2, store, ids=[0])
    for line in results(start_all(5, store, ids=[2, 3, 4])):
        assert line.startswith("ORIEL_ERR_MISMATCH") and "num_processes" in line
    assert results(lead + start_all(2, store, ids=[1])) == ["ORIEL_OK"] * 2


def test_same_id_twice():
    """Two processes with one number: nobody hangs, and not all can succeed."""
    lines = results(start_all(2, job.fresh_store(), ids=[0, 1, 1], init_timeout=2))
    assert any(not line.startswith("ORIEL_OK") for line in lines), lines


def test_jobs_do_not_mix():
    """Two jobs at once, in stores and under names of their own."""
    first, second = job.fresh_store(), job.fresh_store()
    processes = start_all(2, first, job_name="a") + start_all(2, second, job_name="b")
    assert results(processes) == ["ORIEL_OK"] * 4
