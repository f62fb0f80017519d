"""An operation, or a comm, comes about on every rank or on none."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job


def outcomes(output, word):
    """{number: the set of what the processes said about it}"""
    said = {}
    for number, outcome in re.findall(rf"{word} (\d+) (good|bad)", "\n".join(output.lines())):
        said.setdefault(int(number), []).append(outcome)
    return said


@pytest.mark.parametrize("processes", [2, 4])
def test_one_comes_around_the_deadline(processes, record_property):
    rounds = 200 if job.SOAK else 40
    output = job.check(processes, "contest", rounds, limit=3600 if job.SOAK else job.LIMIT)
    said = outcomes(output, "round")
    assert len(said) == rounds
    for number, all_said in said.items():
        assert len(all_said) == processes and len(set(all_said)) == 1, f"round {number}: {all_said}"
    record_property("rounds", rounds)
    record_property("good", sum("good" in all_said for all_said in said.values()))


@pytest.mark.parametrize("operation", job.OPERATIONS)
def test_late_process(operation):
    cases = [(10, {})]
    if operation != "barrier":
        cases.append((100000, {"chunk": "1K", "staging": "256K"}))
    for count, options in cases:
        text = job.check(3, "late_process", count, operation, **options).text
        job.check_told(text, 2, 3.5)  # their deadline is 0.5 s
        job.check_told(text, 1, 0.5, "refused")  # the late one, without one of its own


def test_different_calls():
    job.check(3, "mismatch")


@pytest.mark.parametrize("where", ["destroy", "barrier", "window"])
def test_one_never_comes_to_a_meeting(where):
    """The others wait for their deadline, not for ever, and learn who is missing."""
    store = job.fresh_store()
    processes = [
        job.Process("lonely", where, process_id=p, num_processes=3, store=store) for p in range(3)
    ]
    try:
        for p in (0, 2):
            status, text = processes[p].wait()
            assert status == 0, text
            job.check_told(text, 1, 5.3)  # the deadline is 0.3 s
            assert re.search("^ORIEL_ERR_TIMEOUT .*process 1", text, re.M), text
            assert where == "destroy" or "then ORIEL_ERR_REVOKED" in text, text
    finally:
        for process in processes:
            process.end()


def test_one_is_elsewhere():
    """Process 1 in an operation, the others in a meeting: nobody is told that it waits for itself,
    and all hear the same."""
    output = job.check(3, "lonely", "call")
    here = re.findall(r"^first (.*)$", "\n".join(output.lines()), re.M)
    (there,) = re.findall(
        r"^all_reduce .* on rank 1 \(process 1\): (.*)$", "\n".join(output.lines(1)), re.M
    )
    assert len(here) == 2, output.text
    for sentence in here:
        assert sentence.removeprefix("this process was late: ") == there, output.text
    assert re.search(
        "process [02] was in a meeting of all processes .*, to which process 1 did not "
        "come .* rank 1: it is in all_reduce #1",
        there,
    ) or re.search(r"rank [02] \(process [02]\) did not come", there), output.text
