"""oriel bench: the command as a whole with tiny counts, and its arithmetic."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
if importlib.util.find_spec("oriel") is None:
    sys.path.insert(0, str(ROOT / "python"))

import jax  # noqa: E402
import numpy as np  # noqa: E402

from oriel import bench  # noqa: E402
from oriel.bench import launch, plan, table, worker  # noqa: E402

KEYS = {
    "op",
    "ranks",
    "processes",
    "bytes",
    "dtype",
    "ours_us",
    "spread",
    "peer",
    "peer_us",
    "peer_spread",
    "ratio",
    "repetitions",
}


def run_command(*arguments):
    folder = str(pathlib.Path(bench.__file__).parents[2])
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-m", "oriel", "bench", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )


def make_plan(**changes):
    values = dict(
        operation="all_reduce",
        processes=2,
        devices=1,
        peers=["jax"],
        sizes=[8],
        dtype="f32",
        op="sum",
    )
    return plan.Plan(**values | changes)


# ---- the command ---------------------------------------------------------------


def test_two_processes(tmp_path):
    out = tmp_path / "out.json"
    done = run_command(
        "all_reduce", "-n", 2, "--sizes", "8,64K", "--iterations", 3, "--check", "--json", out
    )
    assert done.returncode == 0, done.stderr
    for word in ("8 B", "64 KiB", "algbw", " jax/oriel >= 3", "of 2 bars are met"):
        assert word in done.stdout
    result = json.loads(out.read_text())
    assert result["command"].startswith("oriel bench all_reduce -n 2")
    assert {"commit", "version", "date", "machine", "jax", "method"} <= result.keys()
    assert {"cpu", "cores", "memory_gib", "kernel", "load", "scheduling"} <= result["machine"].keys()
    assert [row["bytes"] for row in result["rows"]] == [8, 65536]
    for row in result["rows"]:
        assert KEYS <= row.keys()
        assert (row["ranks"], row["processes"], row["peer"]) == (2, 2, "jax")
        assert row["repetitions"] == 3
        assert row["ratio"] == pytest.approx(row["peer_us"] / row["ours_us"], rel=0.01)


def test_two_devices_of_one_process():
    done = run_command(
        "all_reduce", "--devices", 2, "--vs", "jax,empty", "--sizes", "8:64", "--iterations", 3
    )
    assert done.returncode == 0, done.stderr
    assert "1 process, 2 devices" in done.stdout
    assert [line.split(" B ")[0].strip() for line in done.stdout.splitlines()[2:]] == [
        "8",
        "16",
        "64",
    ]


def test_failing_processes_are_reported(monkeypatch, capsys):
    monkeypatch.setattr(launch, "_command", lambda _: [sys.executable, "-c", "exit(3)"])
    assert bench.main(["all_reduce", "--sizes", "8"]) == 1
    assert "exit code 3" in capsys.readouterr().err


def test_missing_command_is_reported(monkeypatch, capsys):
    monkeypatch.setattr(launch.os, "access", lambda *_: False)
    assert bench.main(["all_reduce", "--sizes", "8"]) == 1
    assert "there is no oriel command" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["scatter"], "argument operation: invalid choice: 'scatter'"),
        (["-n", "0"], "argument -n: '0' is no whole number from 1 to 1024"),
        (["--devices", "two"], "argument --devices: 'two' is no whole number"),
        (["--vs", "jax,mpi"], "argument --vs: 'mpi' is no peer"),
        (["--sizes", "8,12Q"], "argument --sizes: '12Q' is no size"),
        (["--sizes", "1M:8"], "argument --sizes: '1M:8' ends below its start"),
        (["--sizes", "10"], "argument --sizes: 10 is no multiple of f32's 4 bytes"),
        (["--dtype", "f7"], "argument --dtype: invalid choice: 'f7'"),
        (["--op", "xor"], "argument --op: invalid choice: 'xor'"),
        (["--op", "prod"], "argument --op: lax has no prod"),
        (["--op", "max", "--dtype", "c64"], "argument --op: complex numbers (c64) have no max"),
        (["--iterations", "-1"], "argument --iterations: '-1' is no whole number"),
        (["--check", "-n", "3"], "argument --check: no bars for 3 processes, 1 device each"),
        (["--check", "--devices", "2", "--vs", "jax"], "for 1 process, 2 devices need --vs jax,empty"),
        (["--strict"], "argument --strict"),
        (["--json", "/nowhere/f"], "argument --json: cannot write '/nowhere/f'"),
    ],
)
def test_bad_arguments(arguments, sentence, capsys):
    words = arguments if arguments[0] == "scatter" else ["all_reduce", *arguments]
    with pytest.raises(SystemExit) as end:
        bench.main(words)
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


# ---- the arithmetic --------------------------------------------------------------


def test_sizes():
    assert plan.sizes("8,1K,2MiB") == [8, 1024, 2 << 20]
    default = plan.default_sizes("f32")
    assert default[:3] == [8, 16, 64] and default[-1] == 64 << 20 and len(default) == 13
    assert plan.default_sizes("c128")[:2] == [16, 64]


def test_a_call_takes_as_long_as_its_slowest_process():
    reports = [
        {"bytes": 8, "times": {"ours": [1000, 5000, 3000], "jax": [6000, 6000, 6000]}},
        {"bytes": 8, "times": {"ours": [2000, 2000, 3000], "jax": [9000, 9000, 3000]}},
    ]
    (row,) = table.make_rows(make_plan(), 8, reports, checked=True)
    assert (row["ours_us"], row["peer_us"], row["ratio"]) == (3.0, 9.0, 3.0)
    assert row["spread"] == pytest.approx((4000 - 2500) / 3000)
    assert row["met"]


def slow_reports(wanted):
    times = {"ours": [2000]} | {peer: [1000] for peer in wanted.peers}
    for nbytes in wanted.sizes:
        yield [{"bytes": nbytes, "times": times}] * wanted.processes


def test_a_miss_is_never_hidden(monkeypatch, capsys):
    monkeypatch.setattr(launch, "reports", slow_reports)
    assert bench.main(["all_reduce", "--check", "--sizes", "8,16M,64M"]) == 0
    out = capsys.readouterr().out
    assert out.count("MISS") == 3 and "0 of 3 bars are met" in out
    assert "missed at 16 MiB: jax/oriel >= 2, it is 0.50" in out
    assert bench.main(["all_reduce", "--check", "--strict", "--sizes", "8"]) == 1


def test_a_check_brings_its_peers(monkeypatch, capsys):
    monkeypatch.setattr(launch, "reports", slow_reports)
    assert bench.main(["all_reduce", "--devices", "2", "--check", "--sizes", "8,1M"]) == 0
    out = capsys.readouterr().out
    assert out.count("MISS jax/oriel >= 1 within spread") == 2
    assert out.count("MISS empty/oriel >= 0.8") == 1  # promised up to 64 KiB


@pytest.mark.parametrize("spread, met", [(0.10, False), (0.30, True)])
def test_a_bar_within_the_spread(spread, met):
    row = {"peer": "jax", "bytes": 8, "ratio": 0.9, "spread": spread, "peer_spread": 0.0}
    bar = bench.bars.bar_of(make_plan(processes=1, devices=2), row)
    assert bench.bars.is_met(bar, row) is met


@pytest.mark.parametrize("dtype, op", [("f32", "sum"), ("bf16", "mean"), ("s8", "prod")])
def test_wrong_results_end_the_run(dtype, op):
    alone = make_plan(processes=1, dtype=dtype, op=op)
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("ranks",))
    x = worker._place(alone, mesh, 64)
    worker._warm_up("ours", lambda x: x, x, alone)
    with pytest.raises(SystemExit, match="ours is wrong at 64 bytes: element 3"):
        worker._warm_up("ours", lambda x: x.at[3].add(1), x, alone)
