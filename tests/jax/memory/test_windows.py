"""oriel.window in jobs of several shapes: what programs read and write, and for how long it lives."""

from pathlib import Path

import pytest
import support

PROGRAMS = Path(__file__).resolve().parent / "programs"
CASES = [
    "looks",
    "dtypes",
    "arguments",
    "operands",
    "results",
    "kernels",
    "in_place",
    "loops",
    "order_refused",
    "outstanding",
    "transformations",
    "compiled",
    "donated",
    "lives",
    "many",
    "renewed",
]
# (processes, devices of each): cases, all of them in a soak
JOBS = {
    (2, 2): CASES,
    (1, 4): [case for case in CASES if case not in ("dtypes", "results")],
    (2, 1): ["looks", "results", "kernels", "loops", "outstanding", "lives", "renewed"],
    (4, 1): ["looks", "operands", "kernels", "many", "renewed"],
}
ALIASES = [
    "kept",
    "misused",
    "orders_of_devices",
    "cached",
    "dropped",
    "threads",
    "copied",
    "two_names",
    "kernels_in_place",
    "inner_functions",
    "read_again",
]
GROUPS = ["world", "groups", "crossing", "larger_mesh", "refusals"]

pytestmark = pytest.mark.timeout(300)


def run(program, *cases, processes, devices=1):
    """{(case, process): what was reported}, and the output."""
    more = {"ORIEL_TIMEOUT": "60", "ORIEL_WARN_AFTER": "1"}
    _, output, reports = support.run_processes(
        PROGRAMS / program, *cases, processes=processes, devices=devices, **more
    )
    entries = {(e["case"], process): e for process, all in reports.items() for e in all}
    return entries, output


def check(told, case, processes):
    entries, output = told
    for process in range(processes):
        entry = entries.get((case, process))
        assert entry, f"{case} came to no end on process {process}:\n{output}"
        assert entry["ok"], f"process {process}: {entry['text']}"


@pytest.fixture(scope="module")
def jobs():
    """{(processes, devices): what came of it}: starting JAX takes longer than any case."""
    told = {}

    def job(processes, devices):
        key = processes, devices
        if key not in told:
            cases = CASES if support.SOAK else JOBS[key]
            told[key] = run("windows.py", *cases, processes=processes, devices=devices)
        return told[key]

    return job


@pytest.mark.parametrize(
    "job, case",
    [(job, case) for job, cases in JOBS.items() for case in (CASES if support.SOAK else cases)],
    ids=lambda value: value if isinstance(value, str) else f"{value[0]}x{value[1]}",
)
def test_windows(jobs, job, case):
    check(jobs(*job), case, job[0])


@pytest.fixture(scope="module")
def aliased():
    return run("aliases.py", *ALIASES, processes=2, devices=2)


@pytest.mark.parametrize("case", ALIASES)
def test_aliases(aliased, case):
    check(aliased, case, 2)


@pytest.fixture(scope="module")
def grouped():
    return run("group_windows.py", *GROUPS, processes=4)


@pytest.mark.parametrize("case", GROUPS)
def test_groups(grouped, case):
    check(grouped, case, 4)


def test_shapes_differ():
    entries, output = run("group_windows.py", "shapes_differ", processes=3)
    texts = {entries["shapes_differ", process]["text"] for process in range(3)}
    assert len(texts) == 1, output
    assert "bytes on process" in texts.pop()


def test_killed():
    """A process that dies while the others make a window is named."""
    entries, output = run("group_windows.py", "killed", processes=3)
    for process in (0, 1):
        assert "process 2" in entries["killed", process]["text"], output
        assert entries["killed", process]["seconds"] < 8, output
