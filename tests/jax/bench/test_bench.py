"""oriel bench: the command as a whole with tiny counts, and its arithmetic."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest
from bench_support import NEEDS_MPI, NEEDS_PLOTS, check_plots, make_plan, run_command
from oriel import _lib, bench
from oriel.bench import arguments, calls, launch, native, plan, table, worker
from oriel.bench.operations import OPERATIONS, ragged_begin
from support import find_oriel

ORIGIN = {"command", "commit", "version", "date", "machine", "jax", "python", "method"}
KEYS = set(
    "op level ranks processes bytes dtype reduction repetitions algbw busbw peer ratio ours_us "
    "low_us high_us spread peer_us peer_low_us peer_high_us peer_spread "
    "ratio_low ratio_high".split()
)


# ---- the level of JAX ------------------------------------------------------------


def test_two_processes(tmp_path):
    out = tmp_path / "out.json"
    done = run_command(
        "all_reduce", "-n", 2, "--sizes", "8,64K", "--iterations", 3, "--check", "--json", out
    )
    assert done.returncode == 0, done.stderr
    for word in ("8 B", "64 KiB", "algbw", " jax/oriel >= 3", "of 2 bars are met"):
        assert word in done.stdout
    assert done.stderr == "", "a progress bar is for terminals"
    result = json.loads(out.read_text())
    assert result["command"].startswith("oriel bench all_reduce -n 2")
    assert ORIGIN | {"rows", "bars"} == result.keys()
    assert {"cpu", "cores", "memory_gib", "kernel", "load", "scheduling"} <= result[
        "machine"
    ].keys()
    assert [row["bytes"] for row in result["rows"]] == [8, 65536]
    for row in result["rows"]:
        assert row.keys() == KEYS | {"bar", "met", "even"}
        assert (row["ranks"], row["processes"], row["peer"]) == (2, 2, "jax")
        assert row["repetitions"] == 3
        assert row["ratio"] == pytest.approx(row["peer_us"] / row["ours_us"], rel=0.01)


def test_two_devices_of_one_process():
    done = run_command(
        "all_reduce", "--devices", 2, "--vs", "jax,empty", "--sizes", "8:64", "--iterations", 3
    )
    assert done.returncode == 0, done.stderr
    assert "1 process, 2 devices" in done.stdout
    sizes = [line.split(" B ")[0].strip() for line in done.stdout.splitlines()[2:]]
    assert sizes == ["8", "16", "64"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_inside_jit(operation):
    """Each on 4 of this process's devices: ours, lax's and the empty call, with
    the right results."""
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:4]), (calls.AXIS,))
    peers = ["jax", "empty"]
    wanted = make_plan(operation=operation, processes=1, devices=4, peers=peers)
    for nbytes in [0] if operation == "barrier" else [16, 80, 4096]:
        x = calls.place(wanted, mesh, nbytes)
        for name in (plan.OURS, *peers):
            program = calls.program(name, wanted, mesh, nbytes)
            worker._warm_up(name, program, x, wanted, nbytes)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_a_peer_on_both_levels(operation, monkeypatch):
    monkeypatch.setattr(native, "find_mpi", lambda: None)
    for words in (["--vs", "jax,mpi"], ["--level", "c,jax"]):
        _, plans = arguments.read([operation, *words])
        assert [(wanted.level, wanted.peers) for wanted in plans] == [
            ("c", ["mpi"]), ("jax", ["jax"])]  # fmt: skip


def test_failing_processes_are_reported(monkeypatch, capsys):
    monkeypatch.setattr(launch, "_command", lambda _: [sys.executable, "-c", "exit(3)"])
    assert bench.main(["all_reduce", "--sizes", "8"]) == 1
    assert "exit code 3" in capsys.readouterr().err


def test_missing_command_is_reported(monkeypatch, capsys):
    monkeypatch.setattr(launch.os, "access", lambda *_: False)
    assert bench.main(["all_reduce", "--sizes", "8"]) == 1
    assert "there is no oriel command" in capsys.readouterr().err


# ---- the level of C ----------------------------------------------------------------


@NEEDS_MPI
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_from_c(operation, tmp_path, monkeypatch):
    """Each with 2 and with 3 processes, which no block divides evenly, beside MPI."""
    monkeypatch.setattr(launch, "find_command", find_oriel)
    for n, sizes in ((2, "8,64K"), (3, "24:1K")):
        out = tmp_path / f"{n}.json"
        words = [operation, "-n", n, "--vs", "mpi", "--sizes", sizes, "--rounds", 1,
                 "--iterations", 4, "--json", out]  # fmt: skip
        assert bench.main([str(word) for word in words]) == 0
        result = json.loads(out.read_text())
        assert result.keys() == ORIGIN | {"rounds", "bind", "mpi", "rows"}
        assert result["mpi"]["version"].startswith("Open MPI ")
        for row in result["rows"]:
            assert row.keys() == KEYS
            assert (row["level"], row["processes"], row["peer"]) == ("c", n, "mpi")
            assert row["repetitions"] == 1
        assert len(result["rows"]) == (1 if operation == "barrier" else 2 if n == 2 else 4)


@NEEDS_MPI
@NEEDS_PLOTS
def test_both_levels_in_one_go(tmp_path):
    done = run_command("all_reduce", "--vs", "jax,mpi", "--sizes", "8:1K", "--rounds", 2,
                       "--iterations", 4, "--check", "--plot", tmp_path / "both")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "from C" in done.stdout and "1 device each" in done.stdout
    assert "of 11 bars are met" in done.stdout
    check_plots(tmp_path / "both")


WRONG_SIDE = """
#include "loop.h"
static const char *side_rank_variable(void) { return "NONE"; }
static void side_open(int *argc, char ***argv, struct call *call)
{
    (void)argc, (void)argv;
    call->ranks = 1;
}
static void side_prepare(const struct call *call) { (void)call; }
static void side_call(const struct call *call, long index)
{
    (void)index;
    memcpy(call->recv, call->send, call->elements * sizeof(float));
    if (call->elements > 100)
        call->recv[100] = 7;
}
static void side_barrier(const struct call *call) { (void)call; }
static void side_max(const struct call *call, double *values, int n)
{
    (void)call, (void)values, (void)n;
}
static void side_close(void) {}
"""


def test_nothing_gets_fast_by_being_wrong(tmp_path):
    (tmp_path / "side.c").write_text(WRONG_SIDE)
    subprocess.run(
        ["cc", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-I",
         native.SOURCES, tmp_path / "side.c", "-o", tmp_path / "side"], check=True
    )  # fmt: skip
    command = [tmp_path / "side", "all_reduce", "3", "2", "none", "8", "1024"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "all_reduce of 1024 bytes is wrong: rank 0, element 100 is 7, not 4" in done.stderr
    assert json.loads(done.stdout)["bytes"] == 8


def test_ratio_of_rounds():
    """A machine that is slower in some rounds, for both: the ratio does not see it."""
    samples = {"ours": [1.0, 4.0, 1.0, 4.0, 4.0], "mpi": [1.5, 6.0, 1.5, 1.5, 6.0]}
    wanted = make_plan(level="c", operation="all_gather", processes=2, peers=["mpi"])
    (row,) = table.make_rows(wanted, 64, samples)
    assert (row["ratio"], row["ours_us"], row["peer_us"]) == (1.5, 4.0, 1.5)
    (row,) = table.make_rows(make_plan(peers=["mpi"]), 64, samples)
    assert row["ratio"] == 0.375


def test_one_turn_after_the_other(monkeypatch):
    """One program at a time; the one that begins changes; figures are medians of batches."""
    begun = []

    def lines(command, *_):
        begun.append(command[0])
        first, last = (1.0, 3.0) if command[0] == plan.OURS else (4.0, 8.0)
        for nbytes in command[-2:]:
            yield json.dumps({"bytes": int(nbytes), "calls": 1, "us": [first, last, 100.0]})

    monkeypatch.setattr(launch, "lines", lines)
    monkeypatch.setattr(native, "_programs", lambda *_: {plan.OURS: [plan.OURS], "mpi": ["mpi"]})
    wanted = make_plan(level="c", peers=["mpi"], sizes=[8, 16], rounds=3)
    samples = native.measure(wanted, bench.Progress(native.steps(wanted)))
    assert begun == ["ours", "mpi", "mpi", "ours", "ours", "mpi"]
    assert samples[16] == {"ours": [3.0] * 3, "mpi": [8.0] * 3}


def test_missing_mpi(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit):
        bench.main(["all_reduce", "--vs", "mpi"])
    sentence = "argument --vs: there is no mpicc and no mpirun on PATH"
    assert sentence in capsys.readouterr().err


def test_missing_compiler(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(launch, "find_command", lambda: "oriel")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert bench.main(["all_reduce", "--level", "c", "--vs", "none"]) == 1
    assert "needs a C compiler" in capsys.readouterr().err


def test_missing_matplotlib(monkeypatch, capsys):
    monkeypatch.setattr(arguments.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        bench.main(["all_reduce", "--plot", "x.svg"])
    assert "it needs matplotlib: pip install 'oriel[plot]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "library, changed, wanted",
    [
        ("1a2b3c4", False, "1a2b3c4"),
        ("1a2b3c4", True, "1a2b3c4-dirty"),
        ("1a2b3c4-dirty", True, "1a2b3c4-dirty"),
        ("unknown", False, "unknown"),
    ],
)
def test_the_commit_is_that_of_the_library(library, changed, wanted, monkeypatch):
    assert bench.machine.describe()["commit"].startswith(_lib.commit())
    monkeypatch.setattr(_lib, "commit", lambda: library)
    monkeypatch.setattr(bench.machine, "_is_changed", lambda: changed)
    assert bench.machine.describe()["commit"] == wanted


# ---- arguments -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["-n", "0"], "argument -n: '0' is no whole number from 1 to 1024"),
        (["--devices", "two"], "argument --devices: 'two' is no whole number"),
        (["--vs", "jax,nccl"], "argument --vs: 'nccl' is no peer"),
        (["--level", "cuda"], "argument --level: 'cuda' is no level; there are: c, jax"),
        (["--level", "c", "--vs", "jax"], "argument --vs: jax belongs to --level jax"),
        (["--level", "jax", "--vs", "mpi"], "argument --vs: mpi belongs to --level c"),
        (["--sizes", "8,12Q"], "argument --sizes: '12Q' is no size"),
        (["--sizes", "1M:8"], "argument --sizes: '1M:8' ends below its start"),
        (["--sizes", "10"], "argument --sizes: 10 is no multiple of f32's 4 bytes"),
        (["--dtype", "f7"], "argument --dtype: invalid choice: 'f7'"),
        (["--op", "xor"], "argument --op: invalid choice: 'xor'"),
        (["--op", "prod"], "argument --op: lax has no prod"),
        (["--op", "max", "--dtype", "c64"], "argument --op: complex numbers (c64) have no max"),
        (["--iterations", "-1"], "argument --iterations: '-1' is no whole number"),
        (["--rounds", "3"], "argument --rounds: it belongs to --level c"),
        (["--level", "c", "--devices", "2"], "argument --devices: at the level of C"),
        (["--level", "c", "--dtype", "f64"], "the level of C measures f32 sum, not f64 sum"),
        (["--level", "c", "--sizes", "2G"], "argument --sizes: at the level of C at most 1G"),
        (["--check", "-n", "3"], "no bars for all_reduce with 3 processes, 1 device each"),
        (
            ["--check", "--devices", "2", "--vs", "jax"],
            "for 1 process, 2 devices need --vs jax,empty",
        ),
        (["--strict"], "argument --strict"),
        (["--json", "/nowhere/f"], "argument --json: cannot write '/nowhere/f'"),
        (["--plot", "/nowhere/f.svg"], "argument --plot: there is no folder for '/nowhere/f.svg'"),
        (["--plot", "f.pdf"], "argument --plot: 'f.pdf' ends neither in .svg nor in .png"),
    ],
)
def test_bad_arguments(words, sentence, capsys):
    expect_refusal(["all_reduce", *words], sentence, capsys)


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["scatter"], "argument OP: invalid choice: 'scatter'"),
        (["scatter"], "ragged_all_to_all, startup)"),
        (["-n", "2", "startup"], "argument OP: startup comes first"),
        (["all_gather", "-n", "4", "--sizes", "24"], "24 is no multiple of 16, one element of f32"),
        (["reduce_scatter", "--op", "max"], "lax has no reduce_scatter with max"),
        (["startup", "-n", "x"], "argument -n: 'x' is no whole number"),
        (["startup", "-n", "8", "--check"], "argument --check: its bars are for 64 processes"),
    ],
)
def test_bad_arguments_of_others(words, sentence, capsys):
    expect_refusal(words, sentence, capsys)


def expect_refusal(words, sentence, capsys):
    with pytest.raises(SystemExit) as end:
        bench.main(words)
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


# ---- the arithmetic --------------------------------------------------------------


def test_sizes():
    assert plan.sizes("8,1K,2MiB") == [8, 1024, 2 << 20]
    assert plan.sizes("8:1K") == (8, 1024)
    default = plan.choose_sizes(None, "all_reduce", 4, False)
    assert default[:3] == [8, 16, 64] and default[-1] == 64 << 20 and len(default) == 13
    assert plan.choose_sizes(None, "all_reduce", 16, False)[:2] == [16, 64]
    assert plan.choose_sizes((8, 100), "all_gather", 12, False) == [12, 60, 96]
    assert plan.choose_sizes((8, 64), "all_reduce", 4, True) == [8, 16, 32, 64]
    assert plan.choose_sizes(None, "barrier", 4, False) == [0]


def test_bus_bandwidth():
    """What each rank must send, as a share of the size: nccl-tests' factors."""
    shares = {name: operation.busbw(4) for name, operation in OPERATIONS.items()}
    assert shares["all_reduce"] == 1.5
    assert shares["all_gather"] == shares["reduce_scatter"] == shares["all_to_all"] == 0.75
    assert shares["broadcast"] == shares["permute"] == 1
    assert shares["ragged_all_to_all"] == 7 / 8  # keeps 1 of 1 + 3 + 1 + 3
    assert [ragged_begin(4, d, 16) for d in range(5)] == [0, 2, 8, 10, 16]


def test_a_call_takes_as_long_as_its_slowest_process():
    reports = [
        {"bytes": 8, "times": {"ours": [1000, 5000, 3000]}},
        {"bytes": 8, "times": {"ours": [2000, 2000, 3000]}},
    ]
    assert table.slowest(reports, "ours") == [2.0, 5.0, 3.0]


def test_a_row():
    samples = {"ours": [2.0, 5.0, 3.0], "jax": [9.0, 9.0, 6.0]}
    (row,) = table.make_rows(make_plan(sizes=[3000]), 3000, samples)
    assert (row["ours_us"], row["peer_us"], row["ratio"]) == (3.0, 9.0, 3.0)
    assert (row["low_us"], row["high_us"]) == (2.5, 4.0)
    assert row["spread"] == 0.5
    assert (row["algbw"], row["busbw"]) == (1.0, 1.0)  # 3,000 bytes in 3 us; 2(n-1)/n = 1


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


def judge(ratios, **changes):
    """{bytes: met}, None for all sizes together, of MPI's times over ours."""
    wanted = make_plan(level="c", peers=["mpi"], sizes=list(ratios), **changes)
    rows = []
    for nbytes, ratio in ratios.items():
        rows += table.make_rows(wanted, nbytes, {"ours": [1.0], "mpi": [ratio]})
    return {verdict["bytes"]: verdict["met"] for verdict in bench.bars.judge(wanted, rows)}


def test_bars_of_the_level_of_c():
    small, large = 8, 1 << 20
    for n in (2, 4, 8):
        assert judge({small: 0.85, large: 2.7}, processes=n) == {
            small: True, large: True, None: True}  # fmt: skip
        assert judge({small: 0.84, large: 1.5}, processes=n) == {
            small: False, large: True, None: False}  # fmt: skip
        assert judge({small: 0.9, large: 1.65}, processes=n, operation="permute") == {
            small: True, large: True, None: True}  # fmt: skip
        assert judge({small: 0.9, large: 1.55}, processes=n, operation="permute")[None] is False
    assert judge({small: 2.0}, processes=3) == {}


def test_interval_of_the_ratios():
    ours, theirs = [1.0] * 15, [float(i) for i in range(15)]
    assert table.interval(ours, theirs) == (3, 11)  # three of 15 to each side: 96.5 %
    assert table.interval(ours[:5], theirs[:5]) == (0, 4)


@pytest.mark.parametrize("best, word", [(0.84, "MISS"), (1.2, "EVEN")])
def test_a_shortfall_that_the_rounds_do_not_show(best, word):
    wanted = make_plan(level="c", peers=["mpi"], sizes=[8], operation="permute")
    times = {"ours": [1.0] * 9, "mpi": [0.8] * 5 + [best] * 4}
    rows = table.make_rows(wanted, 8, times)
    verdict = bench.bars.judge(wanted, rows)[0]
    assert (verdict["met"], verdict["even"]) == (False, word == "EVEN")
    assert f"{word} mpi/oriel >= 0.85" in table.line(rows)


@pytest.mark.parametrize("worst, alone", [(0.85, False), (0.84, True)])
def test_met_by_the_median_alone(worst, alone):
    """The interval reaches below the bar."""
    wanted = make_plan(level="c", peers=["mpi"], sizes=[8], operation="permute")
    rows = table.make_rows(wanted, 8, {"ours": [1.0] * 5, "mpi": [worst, 1.2, 1.3, 1.4, 1.5]})
    verdict = bench.bars.judge(wanted, rows)[0]
    assert verdict["met"] and verdict["by_median"] is alone
    count = ", 1 of them by the median alone" if alone else ""
    assert bench.bars.sentence([verdict]) == f"1 of 1 bars are met{count}; 0 are even, 0 missed"


@pytest.mark.parametrize("spread, met", [(0.10, False), (0.30, True)])
def test_a_bar_within_the_spread(spread, met):
    row = {"peer": "jax", "bytes": 8, "ratio": 0.9, "spread": spread, "peer_spread": 0.0}
    bar = bench.bars.bar_of(make_plan(processes=1, devices=2), row)
    assert bench.bars.is_met(bar, row) is met


@pytest.mark.parametrize("dtype, op", [("f32", "sum"), ("bf16", "mean"), ("s8", "prod")])
def test_wrong_results_end_the_run(dtype, op):
    alone = make_plan(processes=1, dtype=dtype, op=op)
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("ranks",))
    x = calls.place(alone, mesh, 64)
    worker._warm_up("ours", lambda x: x, x, alone, 64)
    with pytest.raises(SystemExit, match="ours is wrong at 64 bytes: element 3"):
        worker._warm_up("ours", lambda x: x.at[3].add(1), x, alone, 64)


def test_progress_is_for_terminals(monkeypatch, capsys):
    progress = bench.Progress(4)
    progress.show("nothing")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = bench.Progress(4)
    progress.step()
    progress.show("8 B")
    assert "━━━━━━───" in (text := capsys.readouterr().err) and "1/4  8 B" in text
