"""Worlds that fail at random, one after the other: processes that raise, die and are replaced, ask
for what they cannot have, and are interrupted. All that are told of a failure are told whose it
is."""

import os
import random
import re
import signal
import time

import pytest
from renewals import plan
from support import SOAK
from test_worlds import Store

ROUNDS = int(os.environ.get("ORIEL_TEST_RENEWALS") or (200 if SOAK else 10))
SEED = int(os.environ.get("SEED") or random.randrange(1 << 30))
PROCESSES = 3
pytestmark = pytest.mark.timeout(300 + 10 * ROUNDS)


class Job:
    """The processes; one that is killed is replaced by the next of its number."""

    def __init__(self, store):
        self.store = store
        self.reports = []  # (process, report) of all
        self.processes = [self.start(p, 0) for p in range(PROCESSES)]

    def start(self, p, number):
        words = ("renewals.py", SEED, ROUNDS, number)
        return self.store.start(p, PROCESSES, *words[1:], program=words[0])

    def look(self, p):
        """Whether the process has come to its end."""
        process = self.processes[p]
        if process.child.poll() is None:
            return False
        reports, _ = process.ended(None)
        killed = [entry["killed"] for entry in reports if "killed" in entry]
        assert killed or process.child.returncode == 0, process.last
        self.reports += [(p, entry) for entry in reports]
        if not killed:
            return True
        assert process.child.returncode == -signal.SIGKILL
        self.processes[p] = self.start(p, killed[0] + 1)
        return False

    def run(self):
        left = set(range(PROCESSES))
        while left:
            left -= {p for p in left if self.look(p)}
            time.sleep(0.01)


def blamed(number):
    """Those who may be named: the one of the round, or of those beside it, where one is a world
    behind."""
    plans = [plan(SEED, n, PROCESSES, ROUNDS) for n in (number - 1, number, number + 1)]
    return {victim for kind, victim, *_ in plans if kind != "good"}


def test_worlds_are_renewed(record_property):
    print(f"SEED={SEED}")
    begun = time.monotonic()
    with Store() as store:
        job_of_all = Job(store)
        job_of_all.run()
    failures = [(p, entry) for p, entry in job_of_all.reports if "text" in entry]
    for p, entry in failures:
        text = entry["text"]
        assert not re.search(r"did not (come|say)", text), f"process {p}: {text}"
        named = {int(q) for q in re.findall(r"process (\d)", re.sub(r"\(process \d\)", "", text))}
        if entry["name"] != "KeyboardInterrupt" and named:
            assert named & blamed(entry["number"]), f"process {p}: {entry}"
    assert sum("ended" in entry for _, entry in job_of_all.reports) == PROCESSES
    record_property("rounds", ROUNDS)
    record_property("seed", SEED)
    record_property("failures", len(failures))
    record_property("seconds", round(time.monotonic() - begun, 1))
