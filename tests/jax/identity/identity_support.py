"""What the tests of this folder share. Its programs lie in programs/."""

import re
from pathlib import Path

import job
import support

PROGRAMS = Path(__file__).resolve().parent / "programs"
# Seconds after which no call may still wait: far more than a difference takes to be told, far
# less than the default.
TIMEOUT = "60"
WARN_AFTER = "1"
# Seconds from the last rank's coming until all have heard, on a machine with a core for each.
SOON = 5.0


def run_program(program, *arguments, processes, **keywords):
    """(exit status, output, what each process reported)."""
    keywords = {"ORIEL_TIMEOUT": TIMEOUT, "ORIEL_WARN_AFTER": WARN_AFTER} | keywords
    return support.run_processes(PROGRAMS / program, *arguments, processes=processes, **keywords)


SIDES = (
    r"rank (?P<a>\d+) asked for (?P<of_a>.+?), rank (?P<b>\d+) for (?P<of_b>.+)",
    r"their programs differ: (?P<of_a>.+) on rank (?P<a>\d+), (?P<of_b>.+) on rank (?P<b>\d+)",
)


def both_sides(text):
    """{rank: what it asked for} of a sentence that two ranks' calls differ."""
    said = re.search(SIDES[0], text) or re.search(SIDES[1], text)
    assert said, f"no two sides in: {text}"
    assert said["a"] != said["b"] and said["of_a"] != said["of_b"], f"no difference in: {text}"
    return {int(said["a"]): said["of_a"], int(said["b"]): said["of_b"]}


def check_soon(entries):
    """All heard soon after the last had come to the call."""
    waited = max(e["told"] for e in entries) - max(e["begun"] for e in entries)
    assert waited < SOON * job.slowness(), entries


def run_in_turn(program, cases, processes=2, **keywords):
    """{case: [what each process reported]} of one job that has them in turn, each in a world of
    its own: starting JAX takes longer than any of them."""
    _, output, reports = run_program(program, *cases, processes=processes, **keywords)
    told = {
        case: [
            [entry for entry in reports.get(process, []) if entry["case"] == case]
            for process in range(processes)
        ]
        for case in cases
    }
    return {case: (entries, output) for case, entries in told.items()}


def check_case(told, case):
    """What the case reported besides: for each process a list."""
    each, output = told[case]
    for entries in each:
        assert entries and "ok" in entries[-1], f"{case} came to no end:\n{output}"
        assert entries[-1]["ok"], entries[-1]["text"]
    return [entries[:-1] for entries in each]
