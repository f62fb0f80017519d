"""The bars of the GPU, computed from the samples under bench/results/gpu_*.json, which
tests/gpu/report.py wrote. All ranks shared one GPU.

Bandwidth counts the bytes that n ranks of one GPU must read and write, against those of a
copy within the device, 256 MiB, of the same run. NCCL and `lax.psum` took turns with oriel
in one run; NCCL's figure is the better of plain memory and symmetric windows."""

import json
import pathlib
import statistics
from collections import namedtuple

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
KIB, MIB = 1 << 10, 1 << 20

# Bytes read and written, for a size of 1: the larger of a rank's input and output.
MOVED = {
    "all_reduce": lambda n: 2 * n,
    "reduce_scatter": lambda n: n + 1,
    "all_gather": lambda n: n + 1,
    "all_to_all": lambda n: 2 * n,
    "broadcast": lambda n: n + 1,
}
# (operation, size, the least share of the copy's bandwidth)
SHARES = [
    ("all_reduce", 256 * MIB, 0.90),
    ("all_reduce", 64 * MIB, 0.85),
    ("reduce_scatter", 256 * MIB, 0.85),
    ("all_gather", 256 * MIB, 0.85),
    ("all_to_all", 256 * MIB, 0.85),
    ("broadcast", 256 * MIB, 0.85),
]
WAYS = ("calls", "graph")

Bar = namedtuple("Bar", "what layout bytes limit figure met")
# Microseconds beside NCCL, one by one or in a graph.
Beside = namedtuple("Beside", "layout way bytes ours plain window ratio most")
# Microseconds inside jit; psum is None where it was not measured.
Jit = namedtuple("Jit", "bytes ours copy psum")


def read(folder=RESULTS):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("gpu_*.json"))]


def layouts(result):
    """(ranks, processes) of the runs in it"""
    return list(dict.fromkeys((s["ranks"], s["processes"]) for s in result["samples"]))


def layout_text(layout):
    ranks, processes = layout
    return f"{ranks} ranks, " + ("threads" if processes == 1 else f"{processes} processes, MPS")


def samples(result, op, **fields):
    """Of `op`; a field that a sample does not have is None."""
    wanted = {"op": op} | fields
    return [s for s in result["samples"] if all(s.get(name) == wanted[name] for name in wanted)]


def find(result, layout, op, nbytes, way="calls", **fields):
    """The median in microseconds; None: not measured."""
    fields = {"beside": None, "fabric": None} | fields
    found = samples(result, op, ranks=layout[0], processes=layout[1], bytes=nbytes, way=way,
                    **fields)  # fmt: skip
    return statistics.median(found[0]["us"]) if found else None


def spread(us):
    """Half the distance of the quartiles, as a share of the median."""
    low, median, high = statistics.quantiles(us, n=4, method="inclusive")
    return (high - low) / median / 2


def sizes(result):
    return sorted({s["bytes"] for s in samples(result, "all_reduce")})


# ---- bandwidth ---------------------------------------------------------------------------


def share(result, layout, op, nbytes):
    copy, us = find(result, layout, "copy", 256 * MIB), find(result, layout, op, nbytes)
    if copy is None or us is None:
        return None
    return (MOVED[op](layout[0]) * nbytes / us) / (2 * 256 * MIB / copy)


def share_bars(result):
    for op, nbytes, least in SHARES:
        for layout in layouts(result):
            figure = share(result, layout, op, nbytes)
            if figure is not None:
                yield Bar(op, layout_text(layout), nbytes, f"at least {least:.0%} of a copy",
                          f"{figure:.1%}", figure >= least)  # fmt: skip


# ---- NCCL --------------------------------------------------------------------------------


def most_of_nccl(nbytes, way, fabric):
    """The most that an all_reduce may take, NCCL's being 1; None: there is no bar."""
    if fabric == "nccl":
        return 0.65 if nbytes <= 64 * KIB else 1.0
    if nbytes <= 64 * KIB:
        return {"calls": 0.6, "graph": 0.5}[way]
    if nbytes == MIB:
        return 0.65
    return 0.5 if nbytes >= 16 * MIB else None


def beside_nccl(result, layout, way, fabric=None):
    """On the nccl fabric both worked on the same windows: those alone are compared."""
    for sample in samples(result, "all_reduce", beside="nccl", way=way, ranks=layout[0],
                          processes=layout[1], fabric=fabric):  # fmt: skip
        nbytes = sample["bytes"]
        ours = statistics.median(sample["us"])
        plain, window = (find(result, layout, "nccl all_reduce", nbytes, way, memory=memory,
                              fabric=fabric) for memory in ("plain", "window"))  # fmt: skip
        peer = window if fabric == "nccl" else min(plain, window)
        yield Beside(layout, way, nbytes, ours, plain, window, ours / peer,
                     most_of_nccl(nbytes, way, fabric))  # fmt: skip


def beyond_memory(result, row):
    """Where the bar asks for more than a copy's bandwidth: what that would give."""
    copy = find(result, row.layout, "copy", 256 * MIB)
    if copy is None or row.bytes < 16 * MIB:
        return ""
    at_best = MOVED["all_reduce"](row.layout[0]) * row.bytes / (2 * 256 * MIB / copy)
    ratio = at_best / min(row.plain, row.window)
    return f" (a copy's bandwidth gives {ratio:.2f})" if ratio > row.most else ""


def nccl_layouts(result, fabric=None):
    found = {(s["ranks"], s["processes"])
             for s in samples(result, "nccl all_reduce", fabric=fabric)}  # fmt: skip
    return [layout for layout in layouts(result) if layout in found]


def nccl_bars(result, fabric=None):
    on = " on nccl" if fabric == "nccl" else ""
    for layout in nccl_layouts(result, fabric):
        for way in WAYS:
            for row in beside_nccl(result, layout, way, fabric):
                if row.most is not None:
                    limit = f"at most {row.most:g} of NCCL{beyond_memory(result, row)}"
                    yield Bar(f"all_reduce{on}, {way}", layout_text(layout), row.bytes, limit,
                              f"{row.ratio:.2f}", row.ratio <= row.most)  # fmt: skip


# ---- inside jit --------------------------------------------------------------------------


def jit_times(result, fabric=None):
    """Lists of microseconds; that of psum is None where NCCL was not at hand."""
    found = {name: {s["bytes"]: s["us"] for s in samples(result, f"jax {name}", fabric=fabric)}
             for name in ("all_reduce", "copy", "psum")}  # fmt: skip
    for nbytes in sorted(found["all_reduce"].keys() & found["copy"].keys()):
        yield Jit(nbytes, found["all_reduce"][nbytes], found["copy"][nbytes],
                  found["psum"].get(nbytes))  # fmt: skip


def jit_bars(result, fabric=None):
    """Up to 64 KiB at most 1.15 times the copy, or 8 us more; faster than psum always."""
    name = f"all_reduce on {fabric} in jit" if fabric else "all_reduce in jit"
    for row in jit_times(result, fabric):
        ours, copy = statistics.median(row.ours), statistics.median(row.copy)
        if row.bytes <= 64 * KIB:
            yield Bar(name, "2 processes, MPS", row.bytes,
                      "at most 1.15 of an FFI copy, or 8 us more",
                      f"{ours / copy:.2f}, {ours - copy:+.1f} us",
                      ours <= max(1.15 * copy, copy + 8))  # fmt: skip
        if row.psum is not None:
            psum = statistics.median(row.psum)
            yield Bar(name, "2 processes, MPS", row.bytes, "less than lax.psum",
                      f"{ours / psum:.2f}", ours < psum)  # fmt: skip


# ---- a kernel of one's own ---------------------------------------------------------------


def kernel_bars(result):
    """The all-reduce of example 07, in turn with the built-in one, from C and inside jit."""
    for way, name in (("calls", "two_shot"), ("jit", "jax two_shot")):
        for sample in samples(result, name, bytes=64 * MIB, way=way):
            layout = sample["ranks"], sample["processes"]
            built_in = find(result, layout, f"{name} beside", 64 * MIB, way)
            ratio = statistics.median(sample["us"]) / built_in
            yield Bar("example's, " + way, layout_text(layout), 64 * MIB,
                      "at most 1.1 of all_reduce", f"{ratio:.2f}", ratio <= 1.1)  # fmt: skip


# ---- what the stages of a call cost the host ----------------------------------------------


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


def stage_bars(result):
    for op, nbytes, us in stage_times(result):
        median = statistics.median(us)
        met = stage_is_met(op, median)
        if met is not None:
            yield Bar(op, "2 processes, MPS", nbytes, "under 5 us", f"{median:.2f} us", met)


def bars(result):
    return [*share_bars(result), *nccl_bars(result), *nccl_bars(result, "nccl"),
            *jit_bars(result), *jit_bars(result, "nccl"), *jit_bars(result, "xla"),
            *kernel_bars(result), *stage_bars(result)]  # fmt: skip


def unmeasured(result):
    """What there are bars for, and no samples."""
    if not nccl_layouts(result):
        yield "NCCL"
    if not nccl_layouts(result, "nccl"):
        yield "the nccl fabric"
    for fabric in ("nccl", "xla"):
        if not samples(result, "jax all_reduce", fabric=fabric):
            yield f"jit on {fabric}"
    if not samples(result, "jax psum"):
        yield "lax.psum"
    if not samples(result, "jax two_shot"):
        yield "a kernel of one's own"
