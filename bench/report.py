#!/usr/bin/env python3
"""Writes bench/results/*.json into docs/performance.md: its tables, between the
lines <!-- begin NAME --> and <!-- end NAME -->, and its plots, docs/plots/*.svg.

    bench/report.py            write them
    bench/report.py --check    exit with 1 where the tables are not those of the results
"""

import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "plots"
sys.path.append(str(ROOT / "bench"))
if not any((pathlib.Path(path) / "oriel").is_dir() for path in sys.path):
    sys.path.insert(0, str(ROOT / "python"))

import gpu  # noqa: E402
from oriel.bench import plot  # noqa: E402
from oriel.bench.operations import OPERATIONS  # noqa: E402
from oriel.bench.table import size_text, time_text  # noqa: E402

JAX_LAYOUTS = {"processes": "2 processes", "devices": "1 process, 2 devices"}


def read_results():
    """name without ending: content"""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))
               if not path.stem.startswith("gpu_")}  # fmt: skip
    old = [name for name, result in results.items() if "level" not in result["rows"][0]]
    for name in old:
        print(f"bench/results/{name}.json is of an older shape: left out", file=sys.stderr)
        del results[name]
    if not results:
        sys.exit("there is nothing in bench/results: bench/measure.sh")
    return results


def table(head, lines):
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [head, rule, *lines])


# ---- the parts of the page ----------------------------------------------------------


def machine_part(results):
    lines = []
    for key in dict.fromkeys(
        (r["machine"]["cpu"], r["machine"]["cores"], r["machine"]["memory_gib"],
         r["machine"]["kernel"], r["commit"]) for r in results.values()
    ):  # fmt: skip
        names = [n for n, r in results.items()
                 if (r["machine"]["cpu"], r["commit"]) == (key[0], key[4])]  # fmt: skip
        lines.append((key[0], key[1], f"{key[2]} GiB", key[3], f"`{key[4]}`", len(names)))
    versions = sorted({r["mpi"]["version"] for r in results.values() if "mpi" in r})
    versions += sorted({f"jax {r['jax']}" for r in results.values()})
    loads = [r["machine"]["load"] for r in results.values()]
    text = table(["CPU", "cores", "memory", "kernel", "commit", "results"], lines)
    return (
        f"{text}\n\n{', '.join(versions)}. Load of the machine when a run began: "
        f"{min(loads):g} to {max(loads):g}."
    )


def worst(verdicts):
    """The figure nearest to, or furthest below, its bar."""
    least = min(verdicts, key=lambda v: v["figure"])
    where = "" if least["bytes"] in (None, 0) else f" at {size_text(least['bytes'])}"
    return f"{least['figure']:.2f}{where}"


def bars_part(results):
    """A line for each bar: how many sizes keep it, and the least figure."""
    lines = []
    for name, result in results.items():
        verdicts = result.get("bars", [])
        for bar in dict.fromkeys(verdict["bar"] for verdict in verdicts):
            same = [verdict for verdict in verdicts if verdict["bar"] == bar]
            met = sum(verdict["met"] for verdict in same)
            word = "met" if met == len(same) else f"**missed** ({len(same) - met} of {len(same)})"
            layout = layout_text(name, same[0])
            lines.append((same[0]["op"], layout, bar, worst(same), word))
    count = sum(len(result.get("bars", [])) for result in results.values())
    met = sum(v["met"] for result in results.values() for v in result.get("bars", []))
    head = ["operation", "layout", "bar", "least figure", ""]
    return f"{met} of {count} bars are met.\n\n{table(head, lines)}"


def layout_text(name, verdict):
    if verdict["level"] == "c":
        return f"C, {verdict['processes']} processes"
    return f"JAX, {JAX_LAYOUTS['devices' if 'devices' in name else 'processes']}"


def misses_part(results):
    lines = []
    for name, result in results.items():
        for verdict in result.get("bars", []):
            if not verdict["met"]:
                size = "all" if verdict["bytes"] is None else size_text(verdict["bytes"])
                layout = layout_text(name, verdict)
                lines.append((verdict["op"], layout, size, verdict["bar"],
                              f"{verdict['figure']:.2f}"))  # fmt: skip
    if not lines:
        return "None."
    return table(["operation", "layout", "size", "bar", "figure"], lines)


def c_part(results, operation):
    found = {n: results.get(f"{operation}_c_{n}") for n in (2, 4, 8)}
    found = {n: result for n, result in found.items() if result is not None}
    if not found:
        return "Not measured."
    by_size = {}
    for n, result in found.items():
        for row in result["rows"]:
            by_size.setdefault(row["bytes"], {})[n] = row
    head, lines = ["size"], []
    for n in found:
        head += [f"{n} processes", "Open MPI", "ratio"]
    for nbytes in sorted(by_size):
        line = [size_text(nbytes)]
        for n in found:
            row = by_size[nbytes].get(n)
            line += row_cells(row) if row else ["", "", ""]
        lines.append(line)
    return f"![{operation} from C](plots/{operation}_c.svg)\n\n{table(head, lines)}"


def row_cells(row):
    def cell(us, spread):
        return f"{time_text(us).replace(' us', ' µs')} ±{spread / 2:.0%}"

    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    peer = "" if row["peer"] is None else cell(row["peer_us"], row["peer_spread"])
    return [cell(row["ours_us"], row["spread"]), peer, ratio]


def jax_part(results):
    parts = []
    for operation in OPERATIONS:
        for layout, text in JAX_LAYOUTS.items():
            result = results.get(f"{operation}_jax_{layout}_2")
            if result is None:
                continue
            lines = [
                [size_text(row["bytes"]), *row_cells(row), row["peer"] or ""]
                for row in result["rows"]
            ]
            parts += [
                f"### {operation}, {text}",
                f"![{operation}](plots/{operation}_jax_{layout}.svg)",
                table(["size", "oriel", "peer", "ratio", "peer is"], lines),
            ]
    return "\n\n".join(parts) or "Not measured."


def startup_part(results):
    if "startup" not in results:
        return "Not measured."
    lines = [
        (row["processes"], time_text(row["create_s"] * 1e6).replace(" us", " µs"),
         time_text(row["beyond_s"] * 1e6).replace(" us", " µs"), f"{row['requests_mean']:.1f}",
         f"{row['requests_most']:.0f}", f"{row['private_bytes'] / 1024:.0f} KiB",
         *(f"{row[name] / 1024:.0f} KiB" for name in ("touched_bytes", "mapped_bytes", "heap_bytes")))
        for row in results["startup"]["rows"]
    ]  # fmt: skip
    head = ["processes", "slowest create", "beyond process start", "requests, mean",
            "of process 0", "private", "heap touched", "mapped", "heap"]  # fmt: skip
    return f"![start-up](plots/startup.svg)\n\n{table(head, lines)}"


def us_text(us):
    return "" if us is None else f"{us:.1f} µs"


def spread_text(us):
    return "" if us is None else f"{statistics.median(us):.1f} µs ±{gpu.spread(us):.0%}"


def ratio_text(ours, peer):
    return "" if peer is None else f"{statistics.median(ours) / statistics.median(peer):.2f}"


def gpu_times(result):
    """oriel's own times, in all layouts."""
    head = [f"{gpu.layout_text(layout)}, {way}" for layout in gpu.layouts(result)
            for way in ("one by one", "in a graph")]  # fmt: skip
    lines = []
    for nbytes in gpu.sizes(result):
        found = [gpu.find(result, layout, "all_reduce", nbytes, way)
                 for layout in gpu.layouts(result) for way in gpu.WAYS]  # fmt: skip
        if any(us is not None for us in found):
            lines.append((size_text(nbytes), *map(us_text, found)))
    return table(["size", *head], lines)


def nccl_table(result, layout):
    by_size = {}
    for way in gpu.WAYS:
        for row in gpu.beside_nccl(result, layout, way):
            by_size.setdefault(row.bytes, {})[way] = row
    lines = []
    for nbytes in sorted(by_size):
        line = [size_text(nbytes)]
        for way in gpu.WAYS:
            row = by_size[nbytes].get(way)
            line += nccl_cells(row) if row else [""] * 5
        lines.append(line)
    peer = ["NCCL", "on windows", "ratio", "at most"]
    return table(["size", "one by one", *peer, "in a graph", *peer], lines)


def nccl_cells(row):
    bar = ""
    if row.most is not None:
        bar = f"{row.most:g}" if row.ratio <= row.most else f"{row.most:g} **missed**"
    return [us_text(row.ours), us_text(row.plain), us_text(row.window), f"{row.ratio:.2f}", bar]


def jit_table(result):
    lines = [
        (size_text(row.bytes), spread_text(row.ours), spread_text(row.copy),
         ratio_text(row.ours, row.copy),
         f"{statistics.median(row.ours) - statistics.median(row.copy):+.1f} µs",
         spread_text(row.psum), ratio_text(row.ours, row.psum))
        for row in gpu.jit_times(result)
    ]  # fmt: skip
    return table(["size", "all_reduce", "an FFI call that copies", "ratio", "more", "lax.psum",
                  "ratio"], lines)  # fmt: skip


def gpu_part():
    made = []
    for result in gpu.read():
        bars = gpu.bars(result)
        shares = list(gpu.share_bars(result))
        shown = [bar for bar in bars if bar in shares or not bar.met]
        shared = "All ranks share one GPU"
        made += [
            f"{result['gpu']}, driver {result['driver']}. **{shared}.** "
            f"{sum(bar.met for bar in bars)} of {len(bars)} bars are met; those of bandwidth, "
            "and what is missed:",
            table(["operation", "ranks", "size", "bar", "figure", ""],
                  [(bar.what, bar.layout, size_text(bar.bytes), bar.limit, bar.figure,
                    "met" if bar.met else "**missed**") for bar in shown]),
            f"all_reduce, f32, sum, microseconds a call. {shared}:",
            gpu_times(result),
        ]  # fmt: skip
        for layout in gpu.nccl_layouts(result):
            made += [
                f"all_reduce beside `ncclAllReduce`, {gpu.layout_text(layout)}. {shared}; the "
                "ratio is to the better of plain memory and symmetric windows:",
                nccl_table(result, layout),
            ]
        made += [
            f"Inside jit, 2 processes, MPS, ± half the distance of the quartiles. {shared}:",
            jit_table(result),
        ]
        made += [f"Not measured: {what}." for what in gpu.unmeasured(result)]
    return "\n\n".join(made) or "Not measured."


def commands_part(results):
    lines = "\n".join(result["command"] for result in results.values())
    return f"```\n{lines}\n```"


def parts(results):
    made = {
        "machine": machine_part(results),
        "bars": bars_part(results),
        "misses": misses_part(results),
        "jax": jax_part(results),
        "startup": startup_part(results),
        "gpu": gpu_part(),
        "commands": commands_part(results),
    }
    for operation in OPERATIONS:
        made[operation] = c_part(results, operation)
    return made


# ---- writing -------------------------------------------------------------------------


def fill(page, made):
    for name, text in made.items():
        pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.S)
        if not pattern.search(page):
            sys.exit(f"docs/performance.md has no lines <!-- begin {name} --> and end")
        page = pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)
    return page


def draw_plots(results):
    PLOTS.mkdir(exist_ok=True)
    from_c = [result for name, result in results.items() if "_c_" in name]
    if from_c:
        plot.save(plot.draw_overview(from_c), PLOTS / "overview.svg")
    for operation in OPERATIONS:
        found = [results.get(f"{operation}_c_{n}") for n in (2, 4, 8)]
        found = [result for result in found if result is not None]
        if found:
            rows = [row for result in found for row in result["rows"]]
            plot.save(plot.draw(found[0] | {"rows": rows}), PLOTS / f"{operation}_c.svg")
        for layout in JAX_LAYOUTS:
            result = results.get(f"{operation}_jax_{layout}_2")
            if result is not None:
                plot.save(plot.draw(result), PLOTS / f"{operation}_jax_{layout}.svg")
    if "startup" in results:
        plot.save(plot.draw_startup(results["startup"]), PLOTS / "startup.svg")


def main():
    results = read_results()
    page = PAGE.read_text()
    filled = fill(page, parts(results))
    if sys.argv[1:] == ["--check"]:
        return 0 if filled == page else "docs/performance.md: run bench/report.py"
    PAGE.write_text(filled)
    draw_plots(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
