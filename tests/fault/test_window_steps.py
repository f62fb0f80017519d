"""A process that is killed or stopped in any step of making and freeing windows: the others are
told in time and in words, and nothing is left behind."""

import os
import random
import re
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

KILLS = int(os.environ.get("ORIEL_TEST_KILLS") or (45 if job.SOAK else 4))
SEED = int(os.environ.get("SEED") or random.randrange(1 << 30))
TOLD_WITHIN = 3.0  # seconds
STEPS = ["before", "lock", "come", "counted", "ready", "heard", "let_go", "giving"]


class Makers:
    def __init__(self, count, victim, step, how, timeout_ms=60000):
        store = job.fresh_store()
        words = ("window_steps", victim, step, how, timeout_ms)
        self.processes = [
            job.Process(*words, process_id=p, num_processes=count, store=store)
            for p in range(count)
        ]
        self.victim = self.processes[victim]
        self.number = victim
        for process in self.processes:
            process.wait_for_line("ready")

    def check(self, since, within, status):
        """Each of the others was told, and by whom it was kept waiting."""
        for process in self.processes:
            if process is self.victim:
                continue
            code, text = process.wait()
            assert code == 0 and "clean" in text.splitlines(), text
            ((when, got, sentence),) = re.findall(
                r"^failed ([\d.]+) rank \d+ (\S+) (.*)$", text, re.M
            )
            assert got == status, text
            assert f"process {self.number}" in sentence, text
            assert float(when) - since < within * job.slowness(), text

    def end(self):
        for process in self.processes:
            process.end()


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("step", STEPS)
def test_killed(step, victim):
    makers = Makers(3, victim, step, "kill")
    try:
        makers.victim.wait()
        makers.check(time.monotonic(), TOLD_WITHIN, "ORIEL_ERR_PEER")
    finally:
        makers.end()


@pytest.mark.parametrize("step", STEPS)
def test_stopped(step):
    """Their deadline ends the wait; the one that was stopped is told when it goes on."""
    timeout_ms = 500
    makers = Makers(3, 1, step, "stop", timeout_ms)
    try:
        since = time.monotonic()
        makers.check(since, 2 * timeout_ms * 1e-3 + TOLD_WITHIN, "ORIEL_ERR_TIMEOUT")
        os.kill(makers.victim.child.pid, signal.SIGCONT)
        code, text = makers.victim.wait()
        assert code == 0 and "clean" in text.splitlines(), text
        assert "ORIEL_ERR_TIMEOUT this process was late: process" in text, text
    finally:
        makers.end()


@pytest.mark.parametrize("count", [2, 4])
def test_killed_at_any_moment(count):
    rng = random.Random(SEED)
    print(f"SEED={SEED}")
    for _ in range(KILLS):
        makers = Makers(count, rng.randrange(count), "any", "kill")
        try:
            time.sleep(rng.uniform(0, 0.05))  # the random moment
            since = time.monotonic()
            makers.victim.child.send_signal(signal.SIGKILL)
            makers.check(since, TOLD_WITHIN, "ORIEL_ERR_PEER")
        finally:
            makers.end()
