"""Calls over groups of ranks (group=), of programs that differ between ranks."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import oriel
import pytest
import support
from kernels import several

PROGRAMS = Path(__file__).resolve().parent / "programs"
FAILING = ["differ", "elsewhere", "killed"]
CASES = [
    "every_operation",
    "others",
    "composed",
    "keywords",
    "crossing",
    "all_ranks",
    "random_calls",
    "outside",
    "shrunk",
]

pytestmark = pytest.mark.timeout(300)


def run(program, *arguments, processes, **keywords):
    keywords = {"ORIEL_TIMEOUT": "60", "ORIEL_WARN_AFTER": "1"} | keywords
    return support.run_processes(PROGRAMS / program, *arguments, processes=processes, **keywords)


@pytest.fixture(scope="module")
def told():
    """One job for all: starting JAX takes longer than any case."""
    return run("members.py", *CASES, processes=4)


@pytest.mark.parametrize("case", CASES)
def test_members(told, case):
    _, output, reports = told
    for process in range(4):
        entries = [entry for entry in reports.get(process, []) if entry["case"] == case]
        assert entries, f"{case} came to no end on process {process}:\n{output}"
        assert entries[0]["ok"], f"process {process}: {entries[0]['text']}"


@pytest.fixture(scope="module")
def failed():
    """{case: {process: what it was told}}, and the output."""
    _, output, reports = run("failing.py", *FAILING, processes=3)
    assert 1 not in reports, output
    return {
        case: {p: e["text"] for p, entries in reports.items() for e in entries if e["case"] == case}
        for case in FAILING
    }, output


def test_members_that_differ(failed):
    texts = failed[0]["differ"]
    assert sorted(texts) == [0, 2], failed[1]
    for text in texts.values():
        assert "all_reduce max of 16 bytes" in text and "all_reduce sum of 16 bytes" in text
        assert "(tag 't') over ranks [2, 0]" in text


def test_members_in_another_order(failed):
    """They never meet; what each waits for is said."""
    texts, output = failed[0]["elsewhere"], failed[1]
    assert sorted(texts) == [0, 2], output
    assert "over ranks [2, 0]" in output and "over ranks [0, 2]" in output
    assert any("did not come within 3.0 s" in text for text in texts.values())


def test_killed_member(failed):
    texts = failed[0]["killed"]
    assert sorted(texts) == [0], failed[1]
    assert "rank 2 is missing" in texts[0] and "process 2" in texts[0]
    assert "all_reduce sum of 16 bytes of f32" in texts[0]


# ---- what is refused before there is a call: this process has eight devices -----------------


@pytest.mark.parametrize(
    "ranks, error, words",
    [
        ([], ValueError, "ranks is empty"),
        ([0, -1], ValueError, r"ranks\[1\] is -1"),
        ([2, 0, 2], ValueError, r"rank 2 is in ranks twice: \[2, 0, 2\]"),
        ([0, 8], ValueError, "rank 8, but this world has 8 ranks"),
        ([0, 1.0], TypeError, r"a list of ranks, got \[0, 1.0\]"),
        (3, TypeError, "a list of ranks, got 3"),
        ("01", TypeError, "a list of ranks, got '01'"),
    ],
)
def test_wrong_ranks(ranks, error, words):
    with pytest.raises(error, match=words):
        oriel.group(ranks)


def test_a_group_is_a_value():
    group = oriel.group(iter((3, 0)))
    assert group == oriel.group([3, 0]) and hash(group) == hash(oriel.group([3, 0]))
    assert group != oriel.group([0, 3])
    assert (group.ranks, group.size, group.index) == ((3, 0), 2, 1)
    assert oriel.group([3]).index is None
    assert repr(group) == "oriel.group([3, 0])"
    assert str(oriel.group(range(8))) == "ranks [0, 1, 2, 3, 4, 5, 6, 7]"


@pytest.fixture(scope="module")
def kernel():
    return several(np.dtype("float32"), "SUM").pass_on


def test_a_call_is_over_axes_or_over_a_group(kernel):
    group = oriel.group([0, 1])
    for call in (
        lambda: oriel.all_reduce(1.0, "x", group=group),
        lambda: oriel.permute(1.0, axis_name="x", perm=[], group=group),
        lambda: oriel.axis_index("x", group=group),
        lambda: kernel(1.0, axis_name="x", group=group),
    ):
        with pytest.raises(ValueError, match=r"axis_name='x' or over group=.*\[0, 1\]"):
            call()
    with pytest.raises(TypeError, match=r"group must be made by oriel.group, got \[0, 1\]"):
        oriel.all_reduce(1.0, group=[0, 1])
    with pytest.raises(TypeError, match=r"oriel.kernel pass_on: group must be made by oriel.group"):
        kernel(1.0, group=3)


def test_one_device_per_process():
    with pytest.raises(ValueError, match=r"with group=\[0, 1\] needs one device per process"):
        oriel.all_reduce(1.0, group=oriel.group([0, 1]))


def test_outside_shard_map():
    mesh = support.make_mesh()
    step = support.over(mesh, lambda v: oriel.all_gather(v, group=oriel.group([0, 1])))
    with pytest.raises(ValueError, match=r"over ranks of the world and belongs outside.*'x'"):
        step(jnp.arange(8.0))
