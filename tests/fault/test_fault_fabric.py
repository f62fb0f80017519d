"""ORIEL_FAULT: each slot of the fabric delayed, dropped, failed, on the lead or on a
follower. Every process is told in time and in words, and the next comm works."""

import re
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import job


def run(fault, *arguments, processes=3, **options):
    """[(step, status, seconds, sentence) of each process]"""
    output = job.check(processes, "recovery", *arguments, fault=fault, **options)
    ends = []
    for p in range(processes):
        found = re.search(r"^(\w+) (\w+) after ([\d.]+) s: (.*)$", "\n".join(output.lines(p)), re.M)
        step, status, seconds, sentence = found.groups()
        assert status in ("ORIEL_OK", "ORIEL_ERR_INVALID") or "recovered" in output.lines(p)
        ends.append(
            (step, status.removeprefix("ORIEL_").removeprefix("ERR_"), float(seconds), sentence)
        )
    return ends, output.text


@pytest.mark.parametrize(
    "fault, step",
    [
        ("probe:1=fail@0", "create"),
        ("probe:1=fail@1", "create"),
        ("segment_create:1=fail", "create"),
        ("port_create:1=fail", "create"),
        ("segment_fetch:1=fail@2", "create"),
        ("segment_fetch:2=fail@1", "window"),
        ("member_join:1=fail@0", "create"),
        ("member_join:1=fail@1", "create"),
        ("operation:1=fail@0", "operation"),
        ("operation:7=fail@2", "operation"),
    ],
)
def test_fail(fault, step):
    slot, call = re.match(r"(\w+):(\d+)", fault).groups()
    ends, text = run(fault)
    for p, (where, status, seconds, sentence) in enumerate(ends):
        assert (where, status) == (step, "SYSTEM"), f"process {p}: {text}"
        assert f"call {call} of {slot} failed, as ORIEL_FAULT asks" in sentence, text
        assert seconds < 20, text


def test_lead_makes_no_arena():
    """It fails in the lead's own call, or in what a peer that comes before that asks for."""
    fault = "segment_create:2=fail@0"
    ends, text = run(fault)
    assert all(end[:2] == ends[0][:2] for end in ends), text
    for where, status, seconds, sentence in ends:
        assert where == "window" and status in ("SYSTEM", "PEER"), text
        own = "call 2 of segment_create failed, as ORIEL_FAULT asks" in sentence
        assert own if status == "SYSTEM" else f'ORIEL_FAULT="{fault}"' in sentence, text
        assert seconds < 20, text


@pytest.mark.parametrize(
    "fault, step", [("port_serve:1=fail", "create"), ("port_serve:3=fail", "window")]
)
def test_peer_gets_no_segment(fault, step):
    ends, text = run(fault)
    for where, status, seconds, sentence in ends:
        assert (where, status) == (step, "PEER"), text
        assert f'ORIEL_FAULT="{fault}"' in sentence and "handed over no segment" in sentence, text
        assert seconds < 20, text


def test_declared_dead():
    """The second look of process 1 finds its neighbour dead: process 2, or 0 where 2 has not
    joined yet, in whichever step all are by then."""
    ends, text = run("member_alive:2=fail@1", 60000, 100 * 1000 * 1000)
    for where, status, seconds, sentence in ends:
        assert where in ("create", "window", "operation") and status == "PEER", text
    gone = [
        re.search(r"process [02] \(pid \d+\) is gone \(ORIEL_FAULT is set\)", sentence)[0]
        for *_, sentence in ends
    ]
    assert len(set(gone)) == 1, text


@pytest.mark.parametrize(
    "fault, step, init_timeout, deadline",
    [
        ("port_serve:1=drop", "create", 1, 6.0),
        ("port_serve:3=drop", "window", 60, 1.0),
        ("segment_fetch:1=drop@1", "create", 1, 6.0),
        ("segment_fetch:2=drop@2", "window", 60, 1.0),
    ],
)
def test_drop(fault, step, init_timeout, deadline):
    ends, text = run(fault, 1000, init_timeout=init_timeout)
    for where, status, seconds, sentence in ends:
        # The end of one who gave up may be the first that the other hears.
        assert where == step and status in ("TIMEOUT", "PEER"), text
        assert "ORIEL_FAULT" in sentence, text
        assert seconds < deadline + 15, text
    assert [status for _, status, _, _ in ends].count("TIMEOUT") >= 2, text


def test_death_that_nobody_looks_for():
    """Without the looks a death is a peer that is late."""
    store = job.fresh_store()
    processes = [
        job.Process(
            "survivor",
            1,
            "none",
            1,
            1500,
            process_id=p,
            num_processes=3,
            store=store,
            fault="member_alive:1+=drop",
        )
        for p in range(3)
    ]
    try:
        for process in processes:
            process.wait_for_line("ready")
        processes[1].child.send_signal(signal.SIGKILL)
        for p in (0, 2):
            status, text = processes[p].wait()
            assert status == 0 and "ORIEL_ERR_TIMEOUT" in text, text
    finally:
        for process in processes:
            process.end()


@pytest.mark.parametrize(
    "fault",
    [
        "probe:1=delay:0.3@1",
        "segment_create:2=delay:0.3",
        "port_create:1=delay:0.3",
        "port_serve:1=delay:0.3",
        "segment_fetch:2=delay:0.3@2",
        "member_join:1=delay:0.3@0",
        "operation:5=delay:0.3@1",
    ],
)
def test_delay(fault):
    """Nobody fails, and somebody was late."""
    ends, text = run(fault)
    for where, status, seconds, sentence in ends:
        assert (where, status) == ("destroy", "OK"), text
    assert max(seconds for _, _, seconds, _ in ends) > 0.3, text
    assert "is delayed by 0.3 s" in text


def test_operation_beyond_the_deadline():
    ends, text = run("operation:5=delay:4@1", 2000)
    for where, status, seconds, sentence in ends:
        assert (where, status) == ("operation", "TIMEOUT"), text
        assert "ORIEL_FAULT is set" in sentence and "rank 1 (process 1)" in sentence, text


@pytest.mark.parametrize("fault, process", [("operation:1=drop@0", 0), ("operation:5=drop@1", 1)])
def test_dropped_operation(fault, process):
    """A rank that does not come: the others wait for it, and it for its own deadline."""
    ends, text = run(fault, 1000)
    for where, status, seconds, sentence in ends:
        assert (where, status) == ("operation", "TIMEOUT"), text
        # By the others' words, or by its own where they were slow to look at the clock.
        assert re.search(
            rf"(rank {process} \(process {process}\)|process {process}) did not come "
            r"within 1\.0 s",
            sentence,
        ), text
        assert "ORIEL_FAULT is set" in sentence, text
        assert 0.9 < seconds < 15, text
    assert len(re.findall(r"call \d of operation is dropped", text)) == 1, text


def test_dropped_operations():
    """Nobody comes."""
    ends, text = run("operation:3=drop", 1000)
    assert [end[:2] for end in ends] == [("operation", "TIMEOUT")] * 3, text
    assert "call 3 of operation was dropped, as ORIEL_FAULT asks" in ends[0][3], text


@pytest.mark.parametrize("action, end", [("fail", "SYSTEM"), ("drop", "TIMEOUT")])
def test_alone(action, end):
    """A call that meets nobody fails like any other."""
    ends, text = run(f"operation:3={action}", 1000, processes=1)
    assert ends[0][:2] == ("operation", end) and "as ORIEL_FAULT asks" in ends[0][3], text


def test_several_faults():
    ends, text = run("operation:3=delay:0.1@0,operation:6=fail@1, probe:9=fail")
    assert all(status == "SYSTEM" for _, status, _, _ in ends), text
    assert "call 6 of operation" in ends[0][3] and "call 3 of operation is delayed" in text


@pytest.mark.parametrize(
    "fault, parts",
    [
        ("segment_fetch", ["segment_fetch", "slot:call=action"]),
        ("segment_fish:1=fail", ["segment_fish", "segment_fetch", "operation"]),
        ("probe:0=fail", ['"0"', "no call"]),
        ("probe:two=fail", ['"two"', "no call"]),
        ("probe:2+3=fail", ['"2+3"', "no call"]),
        ("probe:1=explode", ['"explode"', "fail, drop, delay:SECONDS"]),
        ("probe:1=delay:soon", ['"soon"', "seconds"]),
        ("probe:1=delay:", ["seconds"]),
        ("probe:1=drop", ["probe asks no peer"]),
        ("memory_read:1=drop", ["memory_read asks no peer"]),
        ("probe:1=fail@one", ['"one"', "process"]),
        ("probe:1=fail,port_serve", ["port_serve", "slot:call=action"]),
        (",".join(["probe:9=fail"] * 17), ["more than 16"]),
    ],
)
def test_bad_text(fault, parts):
    ends, text = run(fault)
    for where, status, _, sentence in ends:
        assert (where, status) == ("create", "INVALID"), text
        for part in ["ORIEL_FAULT", *parts]:
            assert part in sentence, text
