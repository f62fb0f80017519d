"""oriel bench startup: what it takes 1, 2, 4 ... C processes to become a job."""

import argparse
import math
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

from oriel import bench
from oriel.bench import arguments, launch, machine, native, plan, table
from oriel.bench.progress import Progress

_METHOD = (
    "C processes on one machine, started by oriel run; create: the longest oriel_comm_create of a "
    "process; beyond: from the last process's main to the last return of oriel_comm_create; "
    "requests: those to the store, each with its answer; reads: of the memory of processes, to "
    "find out whether one may; private: growth of anonymous memory; "
    "heap: the job's shared segment / processes; touched: its pages that are there / processes; "
    "mapped: those of them that a process has mapped; "
    "medians over the rounds; growth: the exponent k of n^k that fits 8, 16, 32 and 64 processes "
    "best (least squares of the logarithms)"
)
_TIMES = ("create_s", "beyond_s")
_COUNTS = ("requests_mean", "requests_most", "reads_mean")
_BYTES = ("private_bytes", "touched_bytes", "mapped_bytes", "heap_bytes")
FIELDS = (*_TIMES, *_COUNTS, *_BYTES)
_BAR = "64 processes: less than 3 s beyond process start"
BAR_S = 3.0

# What grows with the number of processes n, how to read it from a row, and the largest
# exponent of n that it may have. Counts and bytes hardly vary, so that 1.1 tells n from
# n log n; a time does, and 1.5 tells n from its square.
_GROWTH = (
    ("requests to the store, in all", lambda row: row["requests_mean"] * row["processes"], 1.1),
    ("requests of process 0", lambda row: row["requests_most"], 1.1),
    ("memory reads of a process", lambda row: row["reads_mean"], 1.1),
    (
        "memory in use, in all",
        lambda row: (row["private_bytes"] + row["touched_bytes"]) * row["processes"],
        1.1,
    ),
    ("heap reserved, in all", lambda row: row["heap_bytes"] * row["processes"], 1.1),
    ("heap mapped by a process", lambda row: row["mapped_bytes"], 1.1),
    ("time beyond process start", lambda row: row["beyond_s"], 1.5),
)
_GROWTH_COUNTS = (8, 16, 32, 64)


def _parser():
    parser = argparse.ArgumentParser(
        prog="oriel bench startup",
        description="Measures the start of jobs of 1, 2, 4 ... N C processes on this machine.",
    )
    add = parser.add_argument
    add("-n", type=plan.count(1024), default=64, metavar="N", help="processes at most (64)")
    add("--rounds", type=plan.count(1000), default=5, metavar="R", help="starts of each (5)")
    add("--json", metavar="F", help="write the rows to F, with command, machine and commit")
    add("--plot", metavar="F", help="draw F.svg or F.png; without an ending both")
    add("--check", action="store_true", help=f"compare with the bars: {_BAR}; growth")
    add("--strict", action="store_true", help="with --check: exit with 1 on a miss")
    return parser


def start(program, processes):
    """One job: name: figure"""
    command = [*native.run_command(processes), str(program)]
    output = "".join(
        launch.lines(command, os.environ | {"ORIEL_LOG": "debug"}, stderr=subprocess.STDOUT)
    )
    lines = [line.split() for line in re.findall(r"^startup \d+ (.*)$", output, re.M)]
    if len(lines) != processes:
        raise launch.LaunchError(f"{len(lines)} of {processes} processes reported:\n{output}")
    columns = zip(*(map(float, line) for line in lines))
    begun, ended, private, touched, mapped, heap, reads = columns
    requests = [int(n) for n in re.findall(r"store at .*: (\d+) requests$", output, re.M)] or [0]
    return {
        "create_s": max(e - b for b, e in zip(begun, ended)),
        "beyond_s": max(ended) - max(begun),
        "requests_mean": sum(requests) / processes,
        "requests_most": max(requests),
        "reads_mean": sum(reads) / processes,
        "private_bytes": sum(private) / processes,
        "touched_bytes": sum(touched) / processes,
        "mapped_bytes": sum(mapped) / processes,
        "heap_bytes": max(heap) / processes,
    }


def _row(processes, starts):
    row = {"op": "startup", "level": "c", "processes": processes, "ranks": processes,
           "repetitions": len(starts)}  # fmt: skip
    for field in FIELDS:
        values = [start[field] for start in starts]
        row[field] = round(statistics.median(values), 6)
        if field in _TIMES:
            row[f"{field}_low"], row[f"{field}_high"] = round(min(values), 6), round(max(values), 6)
    return row


def _line(row):
    times = "".join(f" {table.time_text(row[name] * 1e6):>11}" for name in _TIMES)
    counts = "".join(f" {row[name]:>9.1f}" for name in _COUNTS)
    memory = "".join(f" {row[name] / 1024:>9.0f}K" for name in _BYTES)
    return f"{row['processes']:>9}{times}{counts}{memory}"


def _measure(a):
    counts = [1 << k for k in range(a.n.bit_length()) if 1 << k < a.n] + [a.n]
    progress = Progress(len(counts) * a.rounds)
    print("start-up, from C; per process")
    print(f"{'processes':>9} {'create':>11} {'beyond':>11} {'requests':>9} {'most':>9}"
          f" {'reads':>9}{'private':>11}{'touched':>11}{'mapped':>11}{'heap':>11}", flush=True)  # fmt: skip
    rows = []
    with tempfile.TemporaryDirectory(prefix="oriel-bench-") as folder:
        program = native.build_oriel("startup.c", pathlib.Path(folder))
        for processes in counts:
            starts = []
            for turn in range(a.rounds):
                progress.show(f"{processes} processes, start {turn + 1} of {a.rounds}")
                starts.append(start(program, processes))
                progress.step()
            progress.clear()
            rows.append(_row(processes, starts))
            print(_line(rows[-1]), flush=True)
    return rows


def growth(rows, figure):
    """The exponent k of n^k that fits best, over rows with 8 to 64 processes; None where
    there is nothing that could grow."""
    points = [(row["processes"], figure(row)) for row in rows
              if row["processes"] in _GROWTH_COUNTS]  # fmt: skip
    if len(points) < 2 or min(value for _, value in points) <= 0:
        return None
    counts, values = zip(*((math.log(n), math.log(value)) for n, value in points))
    return statistics.linear_regression(counts, values).slope


def _verdict(bar, figure, met):
    return {"op": "startup", "level": "c", "processes": 64, "ranks": 64, "bytes": None, "bar": bar,
            "figure": figure, "met": met, "even": False}  # fmt: skip


def judge(rows):
    verdicts = [_verdict(_BAR, row["beyond_s"], row["beyond_s"] < BAR_S)
                for row in rows if row["processes"] == 64]  # fmt: skip
    for what, figure, most in _GROWTH:
        exponent = growth(rows, figure)
        if exponent is not None:
            bar = f"{what}: grows as n^k, k <= {most:g}"
            verdicts.append(_verdict(bar, round(exponent, 3), exponent <= most))
    return verdicts


def _problem(a):
    if a.strict and not a.check:
        return "argument --strict: it says what a miss of --check means; give --check too"
    if a.check and a.n < 64:
        return "argument --check: its bars are for 64 processes; give -n 64"
    return arguments.problem_of_files(a)


def main(words):
    parser = _parser()
    a = parser.parse_args(words)
    if problem := _problem(a):
        parser.error(problem)
    origin = machine.describe()
    rows = _measure(a)
    verdicts = judge(rows) if a.check else []
    for verdict in verdicts:
        word = "met" if verdict["met"] else "missed"
        print(f"{word}: {verdict['bar']}; it is {verdict['figure']:.3f}")
    details = {"method": {"c": _METHOD}, "rounds": a.rounds, "rows": rows}
    details |= {"bars": verdicts} if a.check else {}
    if a.json is not None:
        bench.write_json(a.json, ["startup", *words], origin, **details)
    if a.plot is not None:
        from oriel.bench import plot

        plot.save(plot.draw_startup(origin | details), a.plot)
    return 1 if a.strict and not all(verdict["met"] for verdict in verdicts) else 0
