"""oriel bench startup: what it takes 1, 2, 4 ... C processes to become a job."""

import argparse
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
    "requests: those to the store, each with its answer; private: growth of anonymous memory; "
    "heap: the job's shared segment / processes; touched: its pages that are there / processes; "
    "mapped: those of them that a process has mapped; "
    "medians over the rounds"
)
_FIELDS = ("create_s", "beyond_s", "requests_mean", "requests_most", "private_bytes",
           "touched_bytes", "mapped_bytes", "heap_bytes")  # fmt: skip
_TIMES = _FIELDS[:2]
_BAR = "64 processes: less than 3 s beyond process start"
_BAR_S = 3.0


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
    add("--check", action="store_true", help=f"compare with the bar: {_BAR}")
    add("--strict", action="store_true", help="with --check: exit with 1 on a miss")
    return parser


def _start(program, processes):
    """One job: name: figure"""
    command = [*native.run_command(processes), str(program)]
    output = "".join(
        launch.lines(command, os.environ | {"ORIEL_LOG": "debug"}, stderr=subprocess.STDOUT)
    )
    lines = [line.split() for line in re.findall(r"^startup \d+ (.*)$", output, re.M)]
    if len(lines) != processes:
        raise launch.LaunchError(f"{len(lines)} of {processes} processes reported:\n{output}")
    begun, ended, private, touched, mapped, heap = zip(*(map(float, line) for line in lines))
    requests = [int(n) for n in re.findall(r"store at .*: (\d+) requests$", output, re.M)] or [0]
    return {
        "create_s": max(e - b for b, e in zip(begun, ended)),
        "beyond_s": max(ended) - max(begun),
        "requests_mean": sum(requests) / processes,
        "requests_most": max(requests),
        "private_bytes": sum(private) / processes,
        "touched_bytes": sum(touched) / processes,
        "mapped_bytes": sum(mapped) / processes,
        "heap_bytes": max(heap) / processes,
    }


def _row(processes, starts):
    row = {"op": "startup", "level": "c", "processes": processes, "ranks": processes,
           "repetitions": len(starts)}  # fmt: skip
    for field in _FIELDS:
        values = [start[field] for start in starts]
        row[field] = round(statistics.median(values), 6)
        if field in _TIMES:
            row[f"{field}_low"], row[f"{field}_high"] = round(min(values), 6), round(max(values), 6)
    return row


def _line(row):
    memory = "".join(f" {row[name] / 1024:>9.0f}K" for name in _FIELDS[4:])
    return (
        f"{row['processes']:>9} {table.time_text(row['create_s'] * 1e6):>11} "
        f"{table.time_text(row['beyond_s'] * 1e6):>11} {row['requests_mean']:>9.1f} "
        f"{row['requests_most']:>9.0f}{memory}"
    )


def _measure(a):
    counts = [1 << k for k in range(a.n.bit_length()) if 1 << k < a.n] + [a.n]
    progress = Progress(len(counts) * a.rounds)
    print("start-up, from C; per process")
    print(f"{'processes':>9} {'create':>11} {'beyond':>11} {'requests':>9} {'most':>9}"
          f"{'private':>11}{'touched':>11}{'mapped':>11}{'heap':>11}", flush=True)  # fmt: skip
    rows = []
    with tempfile.TemporaryDirectory(prefix="oriel-bench-") as folder:
        program = native.build_oriel("startup.c", pathlib.Path(folder))
        for processes in counts:
            starts = []
            for turn in range(a.rounds):
                progress.show(f"{processes} processes, start {turn + 1} of {a.rounds}")
                starts.append(_start(program, processes))
                progress.step()
            progress.clear()
            rows.append(_row(processes, starts))
            print(_line(rows[-1]), flush=True)
    return rows


def _judge(rows):
    return [
        {"op": "startup", "level": "c", "processes": row["processes"], "ranks": row["ranks"],
         "bytes": None, "bar": _BAR, "figure": row["beyond_s"], "met": row["beyond_s"] < _BAR_S,
         "even": False}
        for row in rows if row["processes"] == 64
    ]  # fmt: skip


def _problem(a):
    if a.strict and not a.check:
        return "argument --strict: it says what a miss of --check means; give --check too"
    if a.check and a.n < 64:
        return "argument --check: its bar is for 64 processes; give -n 64"
    return arguments.problem_of_files(a)


def main(words):
    parser = _parser()
    a = parser.parse_args(words)
    if problem := _problem(a):
        parser.error(problem)
    origin = machine.describe()
    rows = _measure(a)
    verdicts = _judge(rows) if a.check else []
    for verdict in verdicts:
        print(f"{'met' if verdict['met'] else 'missed'}: {_BAR}, it is {verdict['figure']:.3f} s")
    details = {"method": {"c": _METHOD}, "rounds": a.rounds, "rows": rows}
    details |= {"bars": verdicts} if a.check else {}
    if a.json is not None:
        bench.write_json(a.json, ["startup", *words], origin, **details)
    if a.plot is not None:
        from oriel.bench import plot

        plot.save(plot.draw_startup(origin | details), a.plot)
    return 1 if a.strict and not all(verdict["met"] for verdict in verdicts) else 0
