"""`oriel doctor --job PID`: who does what in a running job, and who holds it up."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher import mpirun_command, needs_mpirun, read_until

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job

LIMIT = 30
BYTES = 1024  # of one call of the looper


class Loopers:
    """Processes that call all_reduce until they are told to end."""

    def __init__(self, tmp_path, count, *words):
        store = job.fresh_store()
        self.file = tmp_path / "end"
        self.processes = [
            job.Process("looper", self.file, *words, process_id=p, num_processes=count, store=store)
            for p in range(count)
        ]
        self.pids = [process.child.pid for process in self.processes]
        for rank, process in enumerate(self.processes):
            process.wait_for_line(f"pid {process.child.pid} rank {rank}")

    def stop(self, rank):
        os.kill(self.pids[rank], signal.SIGSTOP)
        os.waitid(os.P_PID, self.pids[rank], os.WSTOPPED)

    def go_on(self, rank):
        os.kill(self.pids[rank], signal.SIGCONT)

    def end(self):
        """Every one must end well."""
        self.file.touch()
        for process in self.processes:
            status, text = process.wait(LIMIT)
            assert status == 0, text

    def kill(self):
        for process in self.processes:
            if not process.out.closed:
                process.end()


@pytest.fixture
def loopers(tmp_path):
    started = []

    def start(count, *words):
        started.append(Loopers(tmp_path, count, *words))
        return started[-1]

    yield start
    for group in started:
        group.kill()


def look(oriel, pid):
    done = oriel.run("doctor", "--job", pid, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    report = json.loads(done.stdout)
    assert set(report) == {"version", "pid", "comms"} and report["pid"] == pid
    return report["comms"]


def look_until(oriel, pid, words):
    """The first comm, once its verdict says `words`."""
    deadline = time.monotonic() + LIMIT
    while True:
        comm = look(oriel, pid)[0]
        if words in " ".join(comm["verdict"]):
            return comm
        assert time.monotonic() < deadline, comm


def test_stopped_rank(oriel, loopers):
    group = loopers(4)
    group.stop(1)
    comm = look_until(oriel, group.pids[3], "ranks 0, 2, 3 wait")
    assert comm["failure"] == ""
    (sentence,) = comm["verdict"]
    assert f"for rank 1 (pid {group.pids[1]}), which is stopped" in sentence
    assert [rank["pid"] for rank in comm["ranks"]] == group.pids
    assert [rank["state"] for rank in comm["ranks"]] == ["alive", "stopped", "alive", "alive"]
    for number in (0, 2, 3):
        rank = comm["ranks"][number]
        assert rank["rank"] == rank["process"] == number
        assert (rank["doing"], rank["operation"], rank["bytes"]) == ("in", "all_reduce", BYTES)
        assert rank["sequence"] >= comm["ranks"][1]["sequence"] > 0
        assert 0.1 < rank["seconds"] < LIMIT
        assert (rank["waits_for"], rank["in_flight"]) == (1, 1)

    text = oriel.run("doctor", "--job", group.pids[0]).stdout
    assert re.search(rf"^ +1 +1 +{group.pids[1]} +stopped +\w+ +all_reduce ", text, re.M)
    assert (
        len(
            re.findall(
                rf"^ +[023] .* alive +in +all_reduce +\d+ +{BYTES} +\d+\.\d  rank 1$", text, re.M
            )
        )
        == 3
    )
    assert f"for rank 1 (pid {group.pids[1]}), which is stopped" in text.splitlines()[-1]

    group.go_on(1)
    group.end()


def test_running_job_is_left_alone(oriel, loopers):
    group = loopers(2)
    before, after = (look_until(oriel, group.pids[1], "no rank waits long") for _ in range(2))
    assert before["ranks"][0]["sequence"] < after["ranks"][0]["sequence"]
    group.end()


def test_rank_in_no_operation(oriel, loopers):
    """It is alive, but its own program keeps it away."""
    group = loopers(3, 1, "idle", 2)
    comm = look_until(oriel, group.pids[2], "ranks 0, 1 wait")
    (sentence,) = comm["verdict"]
    assert f"for rank 2 (pid {group.pids[2]}), which is alive and in no operation" in sentence
    assert re.search(r"its last was all_reduce #5 of 1024 bytes, done \d+\.\d s ago$", sentence)
    rank = comm["ranks"][2]
    assert (rank["doing"], rank["sequence"], rank["waits_for"]) == ("done", 5, -1)
    group.end()


def test_meeting(oriel, loopers):
    """The end of a comm is no operation, but waits too."""
    group = loopers(3, 1, "stop", 0)
    group.file.touch()
    comm = look_until(oriel, group.pids[1], "ranks 1, 2 wait")
    assert f"for rank 0 (pid {group.pids[0]}), which is stopped" in comm["verdict"][0]
    assert [rank["operation"] for rank in comm["ranks"]] == ["all_reduce", "meeting", "meeting"]
    group.go_on(0)
    group.end()


def test_windows(oriel, loopers):
    """Which there are, and which processes have not let go of them."""
    group = loopers(3, 1, "windows", 1)
    comm = look_until(oriel, group.pids[1], "no rank waits long")
    windows = comm["windows"]
    assert (windows["count"], windows["bytes"]) == (2, 3 * 105000)
    assert 2 * 100000 < windows["taken"] < 1 << 20
    assert windows["largest"] == [
        {"number": 2, "ranks": 3, "bytes": 100000, "processes": [0, 2]},
        {"number": 1, "ranks": 3, "bytes": 5000, "processes": [0, 1, 2]},
    ]
    text = oriel.run("doctor", "--job", group.pids[0]).stdout
    assert f"2 windows, 315000 bytes on all ranks; with what kernels share, {windows['taken']}" in (
        text
    )
    assert re.search(r"^ +2 +3 +100000  0, 2$", text, re.M)
    assert re.search(r"^ +1 +3 +5000  0-2$", text, re.M)
    group.end()


def test_making_a_window(oriel, loopers):
    group = loopers(3, 1, "making", 2)
    comm = look_until(oriel, group.pids[0], "ranks 0, 1 wait")
    assert f"for rank 2 (pid {group.pids[2]}), which is stopped" in comm["verdict"][0]
    assert [rank["operation"] for rank in comm["ranks"]] == ["window", "window", "-"]
    assert [rank["bytes"] for rank in comm["ranks"]] == [5000, 5000, 0]
    group.go_on(2)
    group.end()


def test_dead_rank(oriel, loopers):
    group = loopers(3)
    for rank in (0, 2):
        group.stop(rank)
    group.processes[1].end()
    comm = look(oriel, group.pids[0])[0]
    assert [rank["state"] for rank in comm["ranks"]] == ["stopped", "dead", "stopped"]


def test_several_comms(oriel, loopers):
    group = loopers(2, 3)
    comms = look(oriel, group.pids[0])
    assert sorted(comm["ranks"][0]["operation"] for comm in comms) == ["-", "-", "all_reduce"]
    text = oriel.run("doctor", "--job", group.pids[0]).stdout
    assert [f"comm {i} of 3: 2 ranks in 2 processes" in text for i in (1, 2, 3)] == [True] * 3
    group.end()


def check_launcher(oriel, run, end, operation):
    """The process id of a launcher, which is no rank itself."""
    pids = {}
    for _ in range(3):
        found = read_until(run.stdout, r"pid (\d+) rank (\d+)")
        pids[int(found[2])] = int(found[1])
    os.kill(pids[2], signal.SIGSTOP)
    comm = look_until(oriel, run.pid, "ranks 0, 1 wait")
    assert f"for rank 2 (pid {pids[2]}), which is stopped" in comm["verdict"][0]
    assert [rank["pid"] for rank in comm["ranks"]] == [pids[r] for r in range(3)]
    assert [rank["operation"] for rank in comm["ranks"]][:2] == [operation] * 2
    os.kill(pids[2], signal.SIGCONT)
    end.touch()
    run.communicate(timeout=LIMIT)
    assert run.returncode == 0


def test_launcher(oriel, tmp_path):
    end = tmp_path / "end"
    run = oriel.start("run", "-n", 3, "--", job.program("looper"), end)
    check_launcher(oriel, run, end, "all_reduce")


@needs_mpirun
def test_mpirun(oriel, tmp_path):
    end = tmp_path / "end"
    command, *words = mpirun_command(3, job.program("looper"), end, 1, "gather", 0)
    check_launcher(oriel, oriel.start(*words, command=command), end, "all_gather")


# ---- no such job ------------------------------------------------------------------------


def refusal(oriel, *words):
    done = oriel.run("doctor", *words)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


@pytest.mark.parametrize("words", [["x"], ["-1"], ["0"], ["12x"], [""], []])
def test_no_process_id(oriel, words):
    assert "--job needs a process id, not" in refusal(oriel, "--job", *words)


def test_no_process(oriel):
    with subprocess.Popen(["true"]) as gone:
        pass
    assert refusal(oriel, "--job", gone.pid) == f"oriel doctor: there is no process {gone.pid}\n"


def asleep(**options):
    return subprocess.Popen(["sleep", "60"], **options)


def test_no_job(oriel):
    with asleep() as child:
        said = refusal(oriel, "--job", child.pid, "--json")
        child.kill()
    assert re.fullmatch(
        rf"oriel doctor: neither process {child.pid} nor a process below it has a "
        r"comm of oriel \S+ at the moment\n",
        said,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user(oriel):
    with asleep(user=65534) as child:
        said = refusal(oriel, "--job", child.pid)
        child.kill()
    assert said == (
        f"oriel doctor: process {child.pid} belongs to user 65534, not to user 0 who asks\n"
    )
