"""oriel bench startup: what it counts, and its bars."""

import json

import pytest
from bench_support import NEEDS_PLOTS, check_plots, run_command
from oriel.bench import launch, native, startup
from support import find_oriel


@NEEDS_PLOTS
def test_startup(tmp_path):
    out = tmp_path / "out.json"
    done = run_command("startup", "-n", 5, "--rounds", 2, "--json", out, "--plot", tmp_path / "s")
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert [row["processes"] for row in rows] == [1, 2, 4, 5]
    for row in rows:
        n = row["processes"]
        assert 0 < row["beyond_s"] <= row["create_s_high"]
        assert row["heap_bytes"] > 1 << 20 and row["private_bytes"] > 0
        # Process 0 asks everybody twice; the others say two things, hear three, and find the
        # meeting; one that waits for long asks again.
        assert (row["requests_most"] >= n) == (n > 1)
        assert row["requests_mean"] < 16
        # Each looks once at every process of its machine, itself included.
        assert row["reads_mean"] in (0, n) and (row["reads_mean"] == 0 or n > 1)
    check_plots(tmp_path / "s")


def test_64_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "find_command", find_oriel)
    program = native.build_oriel("startup.c", tmp_path)
    assert startup.start(program, 64)["beyond_s"] < startup.BAR_S


# Of times on a busy machine, by the number of processes.
NOISE = {8: 1.3, 16: 0.8, 32: 1.2, 64: 1.3}


def grown(**exponents):
    """Rows in which a field grows as n^k, others not at all."""
    steady = dict.fromkeys(startup.FIELDS, 1.0)
    return [
        {"processes": n, **steady} | {field: float(n) ** k for field, k in exponents.items()}
        for n in (1, 2, 4, 8, 16, 32, 64)
    ]


def missed(rows):
    return [verdict["bar"].partition(":")[0] for verdict in startup.judge(rows)
            if not verdict["met"]]  # fmt: skip


def test_growth_that_is_promised():
    """Linear in all, and for a process what it does with each of the others."""
    rows = grown(requests_most=1, reads_mean=1, mapped_bytes=1, beyond_s=1)
    for row in rows:
        row["beyond_s"] *= NOISE.get(row["processes"], 1) / 1000
    assert len(startup.judge(rows)) == 8 and missed(rows) == []


@pytest.mark.parametrize("field, k, what", [
    ("requests_mean", 0.2, "requests to the store, in all"),
    ("requests_most", 1.3, "requests of process 0"),
    ("reads_mean", 1.3, "memory reads of a process"),
    ("touched_bytes", 1, "memory in use, in all"),
    ("heap_bytes", 0.2, "heap reserved, in all"),
    ("mapped_bytes", 1.3, "heap mapped by a process"),
])  # fmt: skip
def test_growth_that_is_too_fast(field, k, what):
    assert missed(grown(**{field: k}, beyond_s=0)) == [what]


def test_time_that_grows_with_the_square():
    rows = grown(beyond_s=2)
    for row in rows:
        row["beyond_s"] *= 1e-5 * NOISE.get(row["processes"], 1)
    assert missed(rows) == ["time beyond process start"]


def test_nothing_read_is_no_growth():
    assert startup.growth([{"processes": n, "x": 0} for n in (8, 64)], lambda row: row["x"]) is None
