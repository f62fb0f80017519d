"""The page and the bars that are made of results: bench/report.py, bench/check."""

import importlib.util
import json
import subprocess
import sys

from bench_support import NEEDS_PLOTS, make_plan
from oriel import bench
from oriel.bench import table
from support import ROOT


@NEEDS_PLOTS
def test_report(tmp_path, monkeypatch):
    """bench/report.py finds its places in the page, and its plots are drawn."""
    spec = importlib.util.spec_from_file_location("report", ROOT / "bench" / "report.py")
    report = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    page = tmp_path / "performance.md"
    page.write_text((ROOT / "docs" / "performance.md").read_text())
    for name, path in (("RESULTS", tmp_path), ("PAGE", page), ("PLOTS", tmp_path / "plots")):
        monkeypatch.setattr(report, name, path)
    for n, ratio, last in ((2, 1.25, 1.25), (4, 0.8125, 0.8125), (8, 1.25, 0.75)):
        wanted = make_plan(level="c", operation="all_gather", processes=n, peers=["mpi"])
        samples = {"ours": [2.0] * 3, "mpi": [2 * ratio, 2 * ratio, 2 * last]}
        rows = [row for size in (64, 256) for row in table.make_rows(wanted, size, samples)]
        command = f"oriel bench -n {n} --json /old/a.json --check"
        content = {"rows": rows, "bars": bench.bars.judge(wanted, rows), "command": command}
        content |= bench.machine.describe() | {"mpi": {"version": "Open MPI 4.1.4"}}
        (tmp_path / f"all_gather_c_{n}.json").write_text(json.dumps(content))
    monkeypatch.setattr(sys, "argv", ["report.py"])
    assert report.main() == 0
    text = page.read_text()
    assert "6 of 9 bars are met, 2 of them by the median alone; 0 are even, 3 missed." in text
    assert (
        "| all_gather | C, 8 processes | 256 B | mpi/oriel >= 0.85 | 1.25 | 0.750 to 1.250 |"
        in text
    )
    assert (
        "| all_gather | C, 4 processes | 64 B | mpi/oriel >= 0.85 | 0.81 | 0.812 to 0.812 | **missed** |"
        in text
    )
    assert "\noriel bench -n 4 --json bench/results/all_gather_c_4.json --check\n" in text
    assert "/old/" not in text and "| 3 of 3 from C |" in text
    assert "| 256 B | 2.00 µs ±0% | 2.50 µs ±0% | 1.25 | 2.00 µs ±0% | 1.62 µs" in text
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        "overview.svg", "all_gather_c.svg"}  # fmt: skip


def test_bars_of_a_gpu(tmp_path):
    """bench/check, from samples alone: the better of NCCL's two counts, and medians."""

    def sample(op, way, nbytes, us, **more):
        ranks = {"ranks": 2, "processes": 1 if way != "jit" else 2}
        return {"op": op, "way": way, "bytes": nbytes, "us": us} | ranks | more

    def beside(way, nbytes, ours, plain, window, **more):
        return [sample("all_reduce", way, nbytes, [ours, 1.0, 99.0], beside="nccl", **more),
                sample("nccl all_reduce", way, nbytes, [plain] * 3, memory="plain", **more),
                sample("nccl all_reduce", way, nbytes, [window] * 3, memory="window", **more),
                ]  # fmt: skip

    samples = [
        *beside("calls", 4096, 6.0, 11.0, 10.0),
        *beside("graph", 4096, 6.0, 13.0, 11.9),
        *beside("calls", 256 << 10, 9.0, 10.0, 10.0),  # no bar
        *beside("calls", 1 << 20, 6.6, 10.0, 20.0),
        *beside("graph", 256 << 20, 300.0, 600.0, 800.0),
        *beside("calls", 64 << 10, 6.5, 1.0, 10.0, fabric="nccl"),
        *beside("graph", 256 << 10, 10.1, 1.0, 10.0, fabric="nccl"),
        sample("jax all_reduce", "jit", 1024, [8.0] * 3),
        sample("jax copy", "jit", 1024, [1.0] * 3),
        sample("jax psum", "jit", 1024, [8.0] * 3),
        sample("jax all_reduce", "jit", 4096, [11.6] * 3, fabric="nccl"),
        sample("jax copy", "jit", 4096, [10.0] * 3, fabric="nccl"),
        sample("jax all_reduce", "jit", 4096, [18.1] * 3, fabric="xla"),
        sample("jax copy", "jit", 4096, [10.0] * 3, fabric="xla"),
        sample("jax two_shot", "jit", 64 << 20, [10.9] * 3),
        sample("jax two_shot beside", "jit", 64 << 20, [10.0] * 3),
        sample("jax initialize of all_reduce", "warm", 1024, [5.1] * 3),
    ]
    content = {"gpu": "Some GPU", "driver": "1", "samples": samples}
    (tmp_path / "gpu_some.json").write_text(json.dumps(content))
    (tmp_path / "startup.json").write_text("{}")
    command = [sys.executable, ROOT / "bench" / "check", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()[1:]
    verdicts = [(line.split("  ")[0].strip(), line.split()[-1]) for line in lines]
    assert verdicts == [
        ("all_reduce, calls", "met"), ("all_reduce, calls", "MISSED"),
        ("all_reduce, graph", "MISSED"), ("all_reduce, graph", "met"),
        ("all_reduce on nccl, calls", "met"),
        ("all_reduce on nccl, graph", "MISSED"),
        ("all_reduce in jit", "met"), ("all_reduce in jit", "MISSED"),
        ("all_reduce on nccl in jit", "met"), ("all_reduce on xla in jit", "MISSED"),
        ("example's, jit", "met"), ("initialize of all_reduce", "MISSED")]  # fmt: skip
    assert "0.60" in lines[0] and "0.66" in lines[1] and "0.50" in lines[2]
