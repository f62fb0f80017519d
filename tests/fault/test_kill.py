"""kill -9, SIGSTOP and exits at random moments: the survivors are told in time and
in words, nothing is left behind, and they can start anew."""

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

KILLS = int(os.environ.get("ORIEL_TEST_KILLS") or (45 if job.SOAK else 10))
SEED = int(os.environ.get("SEED") or random.randrange(1 << 30))
TOLD_WITHIN = 3.0  # seconds
LAYOUTS = [(4, 1), (2, 1), (3, 2), (6, 1)]  # processes, ranks of each


def start_survivors(
    n, local_ranks, victim, operation="all_reduce", timeout_ms=60000, again=None, **options
):
    store, again = job.fresh_store(), again or job.fresh_store()
    processes = [
        job.Process(
            "survivor",
            victim,
            again,
            local_ranks,
            timeout_ms,
            operation,
            process_id=p,
            num_processes=n,
            store=store,
            **options,
        )
        for p in range(n)
    ]
    return processes, [store, again]


def failures(text):
    """(when, rank, status, sentence) of each rank of a process."""
    found = re.findall(r"^failed ([\d.]+) rank (\d+) (\S+) (.*)$", text, re.M)
    return [(float(when), int(rank), status, sentence) for when, rank, status, sentence in found]


def check_survivor(process, p, local_ranks, operation, since, status, names, within=TOLD_WITHIN):
    """Each rank of the process was told in time, in words, and it left nothing."""
    code, text = process.wait()
    assert code == 0 and "clean" in text.splitlines(), f"process {p}: {text}"
    told = failures(text)
    size = "" if operation == "barrier" else "bytes"
    within *= job.slowness()
    assert len(told) == local_ranks, text
    for when, rank, got, sentence in told:
        assert got == status, text
        assert 0 < when - since < within, f"rank {rank} was told after {when - since:.3f} s"
        for part in [operation, size, f"on rank {rank} (process {p})", *names]:
            assert part in sentence, f"{part!r} is not in {sentence!r}"
    return max(when for when, *_ in told) - since


def check_nothing_left(stores):
    names = [store.removeprefix("unix:") for store in stores if store != "none"]
    sockets = Path("/proc/net/unix").read_text()
    assert not [name for name in names if name in sockets]


def kill_one(rng, n, local_ranks, victim, operation="all_reduce", **options):
    processes, stores = start_survivors(n, local_ranks, victim, operation, **options)
    try:
        for process in processes:
            process.wait_for_line("ready")
        time.sleep(rng.uniform(0, 0.15))  # the random moment
        since = time.monotonic()
        processes[victim].child.send_signal(signal.SIGKILL)
        first = victim * local_ranks
        longest = max(
            check_survivor(
                process,
                p,
                local_ranks,
                operation,
                since,
                "ORIEL_ERR_PEER",
                [f"rank {first}", "missing", f"process {victim}"],
            )
            for p, process in enumerate(processes)
            if p != victim
        )
        check_nothing_left(stores)
        return longest
    finally:
        for process in processes:
            process.end()


def test_kill_9(record_property):
    """At a random moment of a loop, the lead of the job too."""
    rng = random.Random(SEED)
    longest = 0
    print(f"SEED={SEED}")
    for i in range(KILLS):
        n, local_ranks = LAYOUTS[i % len(LAYOUTS)]
        victim = 0 if i % 3 == 0 else rng.randrange(1, n)
        options = {"chunk": "1K", "staging": "256K"} if i % 2 else {}
        longest = max(longest, kill_one(rng, n, local_ranks, victim, **options))
    record_property("kills", KILLS)
    record_property("seed", SEED)
    record_property("longest_s", round(longest, 3))


@pytest.mark.parametrize("operation", job.OPERATIONS[1:])
def test_kill_9_of_each_operation(operation, record_property):
    """Also of those whose ranks do not all wait for the one that dies."""
    rng = random.Random(SEED)
    kills = 10 if job.SOAK else 1
    print(f"SEED={SEED}")
    for i in range(kills):
        n, local_ranks = LAYOUTS[rng.randrange(len(LAYOUTS))]
        options = {"chunk": "1K", "staging": "256K"} if rng.randrange(2) else {}
        kill_one(rng, n, local_ranks, rng.randrange(n), operation, **options)
    record_property("kills", kills)
    record_property("seed", SEED)


def test_kill_while_starting():
    """Before the comm is whole: an error in bounded time, or the comm and then the
    error of its first operations."""
    rng = random.Random(SEED)
    for i in range(10 if job.SOAK else 3):
        victim = i % 3
        processes, stores = start_survivors(3, 1, victim, again="none", init_timeout=1)
        try:
            time.sleep(rng.uniform(0, 0.01))
            processes[victim].child.send_signal(signal.SIGKILL)
            begun = time.monotonic()
            for p, process in enumerate(processes):
                if p != victim:
                    code, text = process.wait()
                    refused = code == 1 and "oriel_comm_create" in text
                    assert refused or "clean" in text.splitlines(), text
                    assert not refused or re.search("ORIEL_ERR_(TIMEOUT|PEER)", text), text
            assert time.monotonic() - begun < 15 * job.slowness()
            check_nothing_left(stores)
        finally:
            for process in processes:
                process.end()


def test_kill_between_meetings():
    """Barriers and windows: the same meeting fails on all survivors."""
    rng = random.Random(SEED)
    for i in range(20 if job.SOAK else 4):
        victim = i % 3
        store = job.fresh_store()
        processes = [
            job.Process("meetings", process_id=p, num_processes=4, store=store) for p in range(4)
        ]
        try:
            for process in processes:
                process.wait_for_line("ready")
            time.sleep(rng.uniform(0, 0.1))
            since = time.monotonic()
            processes[victim].child.send_signal(signal.SIGKILL)
            failed_at = set()
            for process in processes[:victim] + processes[victim + 1 :]:
                code, text = process.wait()
                assert code == 0 and "clean" in text.splitlines(), text
                when, number, status, sentence = re.search(
                    r"^failed ([\d.]+) meeting (\d+) (\S+) (.*)$", text, re.M
                ).groups()
                assert status == "ORIEL_ERR_PEER", text
                assert f"process {victim}" in sentence, text
                assert float(when) - since < TOLD_WITHIN * job.slowness()
                job.check_told(text, 1, TOLD_WITHIN)
                failed_at.add(number)
            assert len(failed_at) == 1, failed_at
        finally:
            for process in processes:
                process.end()


STOPPED = [(0, "all_reduce"), *((1, operation) for operation in job.OPERATIONS)]


@pytest.mark.parametrize("victim, operation", STOPPED)
def test_stopped(victim, operation):
    """A process that is alive and does not move is late, not dead; the others warn,
    give up at their deadline and name it; when it goes on, it is told too."""
    patience = round(1000 * job.slowness())  # one that gets no core has no time to warn
    processes, stores = start_survivors(
        3, 1, victim, operation, timeout_ms=patience, warn_after=0.2
    )
    try:
        for process in processes:
            process.wait_for_line("ready")
        since = time.monotonic()
        processes[victim].child.send_signal(signal.SIGSTOP)
        others = [(p, process) for p, process in enumerate(processes) if p != victim]
        for p, process in others:
            while not failures(process.text()):
                assert process.child.poll() is None and time.monotonic() < since + job.LIMIT
                time.sleep(0.005)
        warned = [
            f"waits for rank {victim} (process {victim})" in process.text() for _, process in others
        ]
        # One may wait for the other, who waits for the stopped one.
        assert any(warned), [process.text() for _, process in others]
        processes[victim].child.send_signal(signal.SIGCONT)
        for p, process in others:
            check_survivor(
                process,
                p,
                1,
                operation,
                since,
                "ORIEL_ERR_TIMEOUT",
                [f"rank {victim} (process {victim})", f"{operation} #"],
                within=10 + patience / 100,
            )
        code, text = processes[victim].wait()
        assert code == 0 and failures(text) and "clean" in text.splitlines(), text
        check_nothing_left(stores)
    finally:
        for process in processes:
            process.end()


def test_kill_beside_a_stopped_one():
    """The one that would see the death at once is stopped: the third looks, too."""
    processes, _ = start_survivors(3, 1, 1, again="none")
    try:
        for process in processes:
            process.wait_for_line("ready")
        processes[0].child.send_signal(signal.SIGSTOP)
        since = time.monotonic()
        processes[1].child.send_signal(signal.SIGKILL)
        names = ["rank 1 is missing", "process 1 (pid"]
        check_survivor(processes[2], 2, 1, "all_reduce", since, "ORIEL_ERR_PEER", names)
    finally:
        for process in processes:
            process.end()


@pytest.mark.parametrize("how", ["abandon", "exit", "flight", "eager", "barrier", "finalize"])
@pytest.mark.parametrize(
    "options", [{}, {"chunk": "1K", "staging": "256K"}], ids=["plain", "small"]
)
def test_one_leaves(how, options):
    job.check_told(job.check(3, "leaver", how, **options).text, 2, TOLD_WITHIN)


def test_one_finalizes_early():
    """Nobody needs it any more, so it waits for the others to come, however busy they are."""
    job.check(3, "leaver", "early")


def test_death_of_one_end():
    """Of a message: the other end is told, sender or receiver."""
    store = job.fresh_store()
    started = [
        job.Process("messages", 1, "kill", process_id=p, num_processes=3, store=store)
        for p in range(3)
    ]
    try:
        for p, process in enumerate(started):
            code, text = process.wait()
            if p == 1:
                continue
            assert code == 0 and "clean" in text.splitlines(), text
            assert "ORIEL_ERR_PEER message of 1048576 bytes of u8 on rank" in text, text
            assert "rank 1 is missing: process 1" in text, text
    finally:
        for process in started:
            process.end()
