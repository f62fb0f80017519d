#!/usr/bin/env python3
"""Recomputes every bar of the GPU from the samples under tests/gpu/results.

    bench/gpu.py             a line for each bar; exit with 1 where one is missed

Bandwidth counts the bytes that n ranks of one GPU must read and write, against those of a
copy within the device, 256 MiB, of the same run."""

import json
import pathlib
import statistics
import sys

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "gpu" / "results"
MIB = 1 << 20

# Bytes read and written, for a size of 1: the larger of a rank's input and output.
MOVED = {
    "all_reduce": lambda n: 2 * n,
    "reduce_scatter": lambda n: n + 1,
    "all_gather": lambda n: n + 1,
    "all_to_all": lambda n: 2 * n,
    "broadcast": lambda n: n + 1,
}
# (operation, size, the least share of the copy's bandwidth)
BARS = [
    ("all_reduce", 256 * MIB, 0.90),
    ("all_reduce", 64 * MIB, 0.85),
    ("reduce_scatter", 256 * MIB, 0.85),
    ("all_gather", 256 * MIB, 0.85),
    ("all_to_all", 256 * MIB, 0.85),
    ("broadcast", 256 * MIB, 0.85),
]


def read():
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def layouts(result):
    """(ranks, processes) of the runs in it"""
    return list(dict.fromkeys((s["ranks"], s["processes"]) for s in result["samples"]))


def find(result, layout, op, nbytes, way="calls"):
    """The median in microseconds; None: not measured."""
    for sample in result["samples"]:
        if (sample["ranks"], sample["processes"]) == layout and (
            sample["op"], sample["bytes"], sample["way"]
        ) == (op, nbytes, way):  # fmt: skip
            return statistics.median(sample["us"])
    return None


def share(result, layout, op, nbytes):
    copy, us = find(result, layout, "copy", 256 * MIB), find(result, layout, op, nbytes)
    if copy is None or us is None:
        return None
    return (MOVED[op](layout[0]) * nbytes / us) / (2 * 256 * MIB / copy)


def layout_text(layout):
    ranks, processes = layout
    return f"{ranks} ranks, " + ("threads" if processes == 1 else f"{processes} processes, MPS")


def verdicts(result):
    for op, nbytes, least in BARS:
        for layout in layouts(result):
            figure = share(result, layout, op, nbytes)
            if figure is not None:
                yield op, layout_text(layout), nbytes, least, figure


def jit_times(result):
    """(bytes, us of an all_reduce inside jit, us of an FFI call that copies)"""
    ours = {s["bytes"]: s for s in result["samples"] if s["op"] == "jax all_reduce"}
    copies = {s["bytes"]: s for s in result["samples"] if s["op"] == "jax copy"}
    for nbytes in sorted(ours.keys() & copies.keys()):
        yield (nbytes, statistics.median(ours[nbytes]["us"]),
               statistics.median(copies[nbytes]["us"]))  # fmt: skip


def jit_is_met(nbytes, ours, copy):
    """Up to 64 KiB at most 1.15 times the copy, or 8 us more; None: there is no bar."""
    return None if nbytes > 64 << 10 else ours <= max(1.15 * copy, copy + 8)


def stage_times(result):
    """(stage and operation, bytes, us that it cost a thread in each execution, on all ranks)"""
    found = {}
    for sample in result["samples"]:
        if sample["way"] == "warm":
            key = sample["op"].removeprefix("jax "), sample["bytes"]
            found.setdefault(key, []).extend(sample["us"])
    return [(*key, us) for key, us in found.items()]


def stage_is_met(op, median):
    """Under 5 us for initialize; None: there is no bar."""
    return median < 5 if op.startswith("initialize") else None


def sizes(result):
    return sorted({s["bytes"] for s in result["samples"] if s["op"] == "all_reduce"})


def main():
    missed = 0
    for result in read():
        print(f"{result['gpu']}, driver {result['driver']}; the ranks share one GPU")
        for op, layout, nbytes, least, figure in verdicts(result):
            missed += figure < least
            word = "met" if figure >= least else "MISSED"
            print(f"{op:15} {layout:26} {nbytes // MIB:4} MiB  {figure:6.1%} of {least:.0%}  {word}")
        for nbytes, ours, copy in jit_times(result):
            met = jit_is_met(nbytes, ours, copy)
            missed += met is False
            word = {True: "met", False: "MISSED", None: ""}[met]
            print(f"in jit {nbytes:10}: {ours:7.2f} us, copy {copy:7.2f} us, "
                  f"{ours / copy:.2f} times, {ours - copy:+.2f} us  {word}")
        for op, nbytes, us in stage_times(result):
            met = stage_is_met(op, statistics.median(us))
            missed += met is False
            word = {True: "met", False: "MISSED", None: ""}[met]
            print(f"{op:24} {nbytes:10}: {statistics.median(us):7.2f} us  {word}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
