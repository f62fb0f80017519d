"""No order is asked of the user. Plain `python x.py`, no variable set: what XLA
needs is oriel's business."""

import json
import os

import pytest
from support import SOAK, run_plain, run_processes

pytestmark = pytest.mark.timeout(2000 if SOAK else 300)
ITERATIONS = 1000 if SOAK else 60


def test_independent_calls_in_one_process(record_property):
    record_property("iterations", ITERATIONS)
    status, output = run_plain("order.py", ITERATIONS, 8, timeout=1800 if SOAK else 240)
    assert status == 0, output
    assert json.loads(output.split("REPORT ")[1])["ranks"] == 8


@pytest.mark.parametrize("processes, devices", [(2, 2), (4, 1)])
def test_independent_calls_in_many_processes(processes, devices, record_property):
    iterations = ITERATIONS if SOAK else ITERATIONS // 2
    record_property("iterations", iterations)
    status, output, reports = run_processes(
        "order.py",
        iterations,
        processes=processes,
        devices=devices,
        timeout=1800 if SOAK else 240,
    )
    assert status == 0, output
    assert sorted(reports) == list(range(processes)), output


def test_two_threads_on_two_groups():
    status, output = run_plain("threads.py", 1000 if SOAK else 100)
    assert status == 0, output
    assert "REPORT" in output


def test_enough_threads_are_asked_for():
    assert int(os.environ["PJRT_NPROC"]) >= 32
