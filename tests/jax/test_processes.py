"""Several processes under `oriel run`: every layout, every way to start and end."""

import secrets
import subprocess
import sys

import job
import pytest
from support import PROGRAMS, SOAK, environment, run_plain, run_processes

pytestmark = pytest.mark.timeout(300)  # eight imports of JAX on two cores


def assert_all_ok(processes, result):
    status, output, reports = result
    assert status == 0, output
    assert sorted(reports) == list(range(processes)), output
    assert all(entries[0]["ok"] for entries in reports.values())
    return output, reports


LAYOUTS = [(4, 1, "oriel"), (2, 2, "oriel"), (3, 1, "local"), (2, 3, "local"), (2, 2, "jax")]
if SOAK:
    LAYOUTS += [(8, 1, "oriel"), (4, 2, "oriel")]


@pytest.mark.parametrize("processes, devices, kind", LAYOUTS)
def test_layout(processes, devices, kind):
    address = [f"127.0.0.1:{job.free_port()}"] if kind == "jax" else []
    result = run_processes("layout.py", kind, *address, processes=processes, devices=devices)
    _, reports = assert_all_ok(processes, result)
    ranks = sorted(entries[0]["rank"] for entries in reports.values())
    assert ranks == [p * devices for p in range(processes)]


@pytest.mark.parametrize("processes, devices", [(8, 1), (4, 2)])
def test_family(processes, devices, record_property):
    number, seed = (40, 1) if SOAK else (3, 1)
    record_property("cases", number)
    record_property("seed", seed)
    result = run_processes("family.py", number, seed, processes=processes, devices=devices)
    assert_all_ok(processes, result)


def test_alone():
    status, output = run_plain("layout.py", "oriel", devices=1)
    assert status == 0, output
    assert '"size": 1' in output


@pytest.mark.parametrize("how, mode", [("finalize", "local"), ("exit", "global")])
def test_init_again_and_leave(how, mode):
    assert_all_ok(2, run_processes("again.py", 3, how, mode, processes=2))


def test_end_while_a_program_runs():
    result = run_processes("unseen.py", processes=2, devices=2)
    output, reports = assert_all_ok(2, result)
    assert reports[0][1]["seen"] > reports[1][0]["returned"], output


@pytest.mark.parametrize("mode", ["global", "local"])
def test_by_hand(mode):
    """No launcher: process 0 serves the store."""
    if mode == "global":
        store = f"127.0.0.1:{job.free_port()}"
    else:
        store = f"unix:@oriel-test-{secrets.token_hex(8)}"
    word = secrets.token_hex(16)
    children = [
        subprocess.Popen(
            [sys.executable, PROGRAMS / "by_hand.py", str(p), "2", store, word, mode],
            env=environment(devices=1),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for p in range(2)
    ]
    try:
        outputs = [child.communicate(timeout=240)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    for child, output in zip(children, outputs, strict=True):
        assert child.returncode == 0, output
        assert "REPORT" in output


def test_large_message(record_property):
    nbytes = (1 << 30) if SOAK else (1 << 26)
    record_property("bytes", nbytes)
    assert_all_ok(2, run_processes("large.py", nbytes, processes=2))


@pytest.mark.parametrize("processes", [2, 3])
def test_calls_whose_shapes_differ(processes):
    assert_all_ok(processes, run_processes("raw_calls.py", processes=processes))
