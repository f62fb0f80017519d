"""init and finalize where a process fails, dies, is interrupted, or has made fewer calls."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import job
import pytest
from support import environment, run_processes

PROGRAMS = Path(__file__).resolve().parent / "programs"

pytestmark = pytest.mark.timeout(300)
TOLD_WITHIN = 3.0  # seconds
ENDS_WITHIN = 1.0  # seconds after Ctrl-C
LONG = "120"  # a deadline that no test waits for


class Process(job.Process):
    """One of a job that is started by hand, with its store."""

    def __init__(self, store, p, n, *arguments, program="worlds.py", stdin=subprocess.DEVNULL):
        env = environment() | {
            "XLA_FLAGS": "",
            "JAX_ENABLE_X64": "0",
            "ORIEL_PROCESS_ID": p,
            "ORIEL_NUM_PROCESSES": n,
            "ORIEL_STORE": store,
            "ORIEL_TIMEOUT": LONG,
            "ORIEL_INIT_TIMEOUT": LONG,
            "ORIEL_WARN_AFTER": "0.5",
        }
        super().__init__(sys.executable, PROGRAMS / program, *arguments, stdin=stdin, env=env)
        self.last = ""  # all that it printed, once it has ended

    def wait_for_text(self, text):
        while text not in self.text():
            assert self.child.poll() is None, self.text()
            time.sleep(0.005)

    def interrupt(self):
        """When."""
        self.child.send_signal(signal.SIGINT)
        return time.monotonic()

    def ended(self, want=0):
        status, text = self.wait()
        self.last = text
        assert want is None or status == want, text
        reports = [json.loads(line) for line in re.findall(r"^REPORT (.*)$", text, re.M)]
        return reports, text


class Store:
    """A store that outlives its clients; says when keys have come."""

    def __init__(self, *keys):
        self.address = job.fresh_store()
        self.holder = job.Process("hold_store", self.address, *keys, stdin=subprocess.PIPE)
        self.holder.wait_for_line("ready")
        self.processes = []

    def start(self, *arguments, **keywords):
        self.processes.append(Process(self.address, *arguments, **keywords))
        return self.processes[-1]

    def wait_for(self, key):
        self.holder.wait_for_line(key)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in [*self.processes, self.holder]:
            if not process.out.closed:
                process.end()


def run(how, mode, processes):
    return run_processes(
        PROGRAMS / "worlds.py",
        how,
        mode,
        processes=processes,
        ORIEL_TIMEOUT=LONG,
        ORIEL_INIT_TIMEOUT=LONG,
    )


# ---- one cause on all ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["local", "global"])
def test_one_call_less(mode):
    """Those who wait for process 1 hear that it is in finalize, and so does it; then all go on."""
    status, output, reports = run("early", mode, 3)
    assert status == 0, output
    left = reports[1][0]["left"]
    for p, (_, failure, good) in reports.items():
        assert failure["at"] - left < TOLD_WITHIN * job.slowness()
        text = failure["text"]
        assert re.search(r"process 1 \(pid \d+\) is in finalize", text), text
        assert "waits for it in all_reduce sum of 12 bytes of f32" in text
        assert p == 1 or f"on rank {p} (process {p}): rank 1 is missing" in text
        assert "process 0 did not come" not in text and good["ok"]


@pytest.mark.parametrize("mode", ["local", "global"])
def test_init_fails_on_one(mode):
    status, output, reports = run("platform", mode, 3)
    assert status == 0, output
    told = reports[1][0]["at"]
    for p, (failure, good) in reports.items():
        assert failure["at"] - told < TOLD_WITHIN * job.slowness()
        assert failure["status"] == "UNSUPPORTED" and good["ok"]
        who = "" if p == 1 else "process 1: "
        assert failure["text"].startswith(f"{who}JAX has no devices of platform 'cuda' here")


@pytest.mark.parametrize("mode", ["local", "global"])
@pytest.mark.parametrize("argument, said", [("timeout", "got -1"), ("name", "got 'abacus'")])
def test_an_argument_is_wrong_on_one(mode, argument, said):
    """The others hear of it, though that process never comes again."""
    status, output, reports = run(argument, mode, 3)
    assert status == 0, output
    for p, (failure,) in reports.items():
        assert failure["at"] - reports[1][0]["at"] < TOLD_WITHIN * job.slowness()
        who = "" if p == 1 else "process 1: "
        assert failure["text"].startswith(who) and failure["text"].endswith(said), failure


@pytest.mark.parametrize("mode", ["local", "global"])
def test_programs_in_flight(mode):
    """JAX starts programs when it can: finalize awaits those whose results are there to be used."""
    status, output, reports = run("flight", mode, 3)
    assert status == 0, output
    assert all(said[-1] == {"ok": True} for said in reports.values()), output


def test_programs_that_only_one_starts():
    """One finalize fails for what another process has in flight, and all come to their end."""
    begun = time.monotonic()
    status, output, reports = run("alone", "global", 3)
    assert status == 0 and all(said[-1]["ok"] for said in reports.values()), output
    assert time.monotonic() - begun < 40 * job.slowness(), output


def test_one_dies_in_init():
    with Store() as store:
        processes = [store.start(p, 3, "dies", "global") for p in range(3)]
        pid = processes[1].child.pid
        processes[1].wait()
        died = time.monotonic()
        for p in (0, 2):
            ((failure,), _) = processes[p].ended()
            assert failure["at"] - died < TOLD_WITHIN * job.slowness()
            assert failure["text"].endswith(f"process 1 (pid {pid}) is gone"), failure
            assert failure["status"] == "PEER"


def test_failed_world_is_not_kept():
    with Store() as store:
        first, second = (store.start(p, 2, "kept", "local") for p in range(2))
        second.wait()
        ((failure, again, good), _) = first.ended()
        assert "is gone" in failure["text"] and good["ok"]
        assert again["status"] == "REVOKED" and "process 1" in again["text"]
        assert again["text"].endswith("call oriel.finalize() and then oriel.init()")


# ---- Ctrl-C ---------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0, 1])
@pytest.mark.parametrize("mode, job_name", [("local", "oriel"), ("global", "oriel/start")])
def test_interrupted_in_init(mode, job_name, p):
    """Process 2 never comes; what one is told, the other hears."""
    with Store(f"{job_name}/0/hello/0", f"{job_name}/0/hello/1") as store:
        processes = [store.start(q, 3, "init", mode) for q in range(2)]
        store.wait_for(f"{job_name}/0/hello/1")
        since = processes[p].interrupt()
        ((mine,), _), ((others,), _) = processes[p].ended(), processes[1 - p].ended()
        assert mine["kind"] == "KeyboardInterrupt"
        assert mine["at"] - since < ENDS_WITHIN * job.slowness()
        assert others["at"] - since < TOLD_WITHIN * job.slowness()
        assert others["text"] == f"process {p}: interrupted (Ctrl-C)"


def test_interrupted_at_the_end_of_init():
    """The others have a world by then, and hear that it lacks one; all go on in the next."""
    status, output, reports = run("unmade", "local", 3)
    assert status == 0 and all(said[-1] == {"ok": True} for said in reports.values()), output
    for p in (0, 2):
        assert reports[p][0]["at"] - reports[1][0]["at"] < TOLD_WITHIN * job.slowness()
        assert "interrupted (Ctrl-C)" in reports[p][0]["text"]


def test_interrupted_beside_init():
    """Ctrl-C is the main thread's: when that ends, so does init in another."""
    with Store("oriel/0/hello/1") as store:
        process = store.start(1, 2, "thread", "local")
        store.wait_for("oriel/0/hello/1")
        since = process.interrupt()
        ((mine,), text) = process.ended(-signal.SIGINT)
        assert mine["kind"] == "KeyboardInterrupt" and "Traceback" in text
        assert mine["at"] - since < ENDS_WITHIN * job.slowness()


def test_interrupted_without_a_store():
    """Process 0, which would hold it, never comes."""
    process = Process(job.fresh_store(), 1, 2, "init", "local")
    try:
        process.wait_for_text("still trying")
        since = process.interrupt()
        ((mine,), _) = process.ended()
        assert mine["kind"] == "KeyboardInterrupt"
        assert mine["at"] - since < ENDS_WITHIN * job.slowness()
    finally:
        if not process.out.closed:
            process.end()


@pytest.mark.parametrize("mode", ["local", "global"])
def test_interrupted_in_finalize(mode):
    with Store() as store:
        first, second = (
            store.start(p, 2, "finalize", mode, stdin=subprocess.PIPE) for p in range(2)
        )
        second.wait_for_line("process 0 waits")
        since = first.interrupt()
        first.wait_for_text("REPORT")
        second.child.stdin.close()
        second.wait_for_text("REPORT")
        # Process 0 lives until then: JAX ends a process whose coordinator is gone.
        first.child.stdin.close()
        ((mine,), _), ((others,), _) = first.ended(), second.ended()
        assert mine["kind"] == "KeyboardInterrupt"
        assert mine["at"] - since < ENDS_WITHIN * job.slowness()
        assert re.search(r"process 0 \(pid \d+\): interrupted \(Ctrl-C\)", others["text"])


# ---- renewal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["local", "global"])
def test_renewal_compiles_nothing(mode):
    status, output, reports = run("compile", mode, 2)
    assert status == 0 and all(said[-1]["ok"] for said in reports.values()), output
