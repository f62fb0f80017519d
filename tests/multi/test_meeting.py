"""How processes meet when one of them dies, fails, or has missed a meeting."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

TOLD_WITHIN = 3.0  # seconds


class Store:
    """A store that outlives its clients; says when keys have come."""

    def __init__(self, *keys):
        self.address = job.fresh_store()
        self.process = job.Process("hold_store", self.address, *keys, stdin=subprocess.PIPE)
        self.process.wait_for_line("ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.end()

    def wait_for(self, key):
        self.process.wait_for_line(key)


def start(store, p, n=3, tries=1, *more, **options):
    return job.Process("returner", p, n, store.address, tries, *more, **options)


def tries(process):
    """(when, status, sentence) of each."""
    status, text = process.wait()
    assert status == 0, text
    found = re.findall(r"^([\d.]+) (ORIEL_\w+) (.*)$", text, re.M)
    return [(float(when), status, sentence) for when, status, sentence in found]


@pytest.mark.parametrize("victim", [0, 1])
def test_one_dies_in_the_meeting(victim):
    """Those who wait for a third are told who is gone, and a new process takes its place."""
    with Store("oriel/0/hello/0", "oriel/0/hello/1") as store:
        processes = {p: start(store, p, tries=2) for p in (0, 1)}
        store.wait_for("oriel/0/hello/1")
        since = time.monotonic()
        pid = processes[victim].child.pid
        processes[victim].child.send_signal(signal.SIGKILL)
        processes.pop(victim).wait()
        (other,) = processes
        while "ORIEL_ERR" not in processes[other].text():
            assert time.monotonic() - since < job.LIMIT
            time.sleep(0.005)
        replacement = start(store, victim)
        late = start(store, 2, tries=2)
        (when, status, sentence), (_, then, _) = tries(processes[other])
        assert (status, sentence, then) == (
            "ORIEL_ERR_PEER",
            f"process {victim} (pid {pid}) is gone",
            "ORIEL_OK",
        )
        assert when - since < TOLD_WITHIN * job.slowness()
        assert [status for _, status, _ in tries(replacement)] == ["ORIEL_OK"]
        # It comes to a meeting that is over, and hears of it once; or to the one after.
        assert [status for _, status, _ in tries(late)][-1] == "ORIEL_OK"


def test_one_has_tried_alone():
    """It has given up before the others came, so they hear that, and meet in their next try."""
    with Store() as store:
        impatient = start(store, 1, 2, 2, 0.01)
        while "ORIEL_ERR_TIMEOUT" not in impatient.text():
            assert impatient.child.poll() is None
            time.sleep(0.005)
        (_, first, sentence), (_, second, _) = tries(start(store, 0, 2, 2))
        assert (first, second) == ("ORIEL_ERR_TIMEOUT", "ORIEL_OK")
        assert sentence.startswith("process 1 has given up: process 0 did not say hello")
        assert [status for _, status, _ in tries(impatient)] == ["ORIEL_ERR_TIMEOUT", "ORIEL_OK"]


def test_one_missed_a_meeting():
    """The others waited in vain, and wait again: it comes to where they are now."""
    with Store("oriel/1/hello/0") as store:
        others = [start(store, p, 3, 2, 0.2) for p in (0, 2)]
        store.wait_for("oriel/1/hello/0")
        assert [status for _, status, _ in tries(start(store, 1))] == ["ORIEL_OK"]
        for process in others:
            (_, first, sentence), (_, second, _) = tries(process)
            assert (first, second) == ("ORIEL_ERR_TIMEOUT", "ORIEL_OK")
            assert "process 1 did not say hello" in sentence


@pytest.mark.parametrize("bad", [0, 2])
def test_one_fails(bad):
    """An option that makes no sense, on one process: all fail at once, by name."""
    with Store() as store:
        begun = time.monotonic()
        processes = [start(store, p, staging="1" if p == bad else "1M") for p in range(3)]
        for p, process in enumerate(processes):
            ((when, status, sentence),) = tries(process)
            assert status == "ORIEL_ERR_INVALID", sentence
            assert sentence.startswith("" if p == bad else f"process {bad}: "), sentence
            assert 'ORIEL_STAGING="1"' in sentence
            assert when - begun < 10 * job.slowness()
