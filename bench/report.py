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
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
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


def jit_line(nbytes, ours, copy):
    word = {True: "met", False: "**missed**", None: ""}[gpu.jit_is_met(nbytes, ours, copy)]
    return (size_text(nbytes), f"{ours:.1f} µs", f"{copy:.1f} µs", f"{ours / copy:.2f}",
            f"{ours - copy:+.1f} µs", word)  # fmt: skip


def gpu_part():
    made = []
    for result in gpu.read():
        bars = [(op, layout, size_text(nbytes), f"{least:.0%}", f"{figure:.1%}",
                 "met" if figure >= least else "**missed**")
                for op, layout, nbytes, least, figure in gpu.verdicts(result)]  # fmt: skip
        times = []
        for nbytes in gpu.sizes(result):
            found = [gpu.find(result, layout, "all_reduce", nbytes, way)
                     for layout in gpu.layouts(result) for way in ("calls", "graph")]  # fmt: skip
            times.append((size_text(nbytes), *("" if us is None else f"{us:.1f} µs" for us in found)))
        head = [f"{gpu.layout_text(layout)}, {way}" for layout in gpu.layouts(result)
                for way in ("one by one", "in a graph")]  # fmt: skip
        made += [
            f"{result['gpu']}, driver {result['driver']}. **All ranks share this one GPU.**",
            table(["operation", "ranks", "size", "of the copy's bandwidth", "figure", ""], bars),
            "all_reduce, f32, sum, microseconds a call:",
            table(["size", *head], times),
            "Inside jit, 2 processes. The bar, up to 64 KiB: 1.15 times the copy, or 8 µs more.",
            table(["size", "all_reduce", "a call that copies", "ratio", "more", ""],
                  [jit_line(*row) for row in gpu.jit_times(result)]),
        ]
    return "\n\n".join(made) or "Not measured."


def setting_table(result, way, head, text):
    """Medians of an all_reduce, a line for each value of an option."""
    found = {}
    for sample in result["samples"]:
        if sample["way"] == way:
            line = found.setdefault(sample[way], {})
            line[sample["bytes"]] = statistics.median(sample["us"])
    sizes = sorted({nbytes for line in found.values() for nbytes in line})
    lines = [(text(value), *(f"{line[nbytes]:.1f} µs" for nbytes in sizes))
             for value, line in sorted(found.items())]  # fmt: skip
    return table([head, *map(size_text, sizes)], lines) if found else "Not measured."


def stage_line(op, nbytes, us):
    median = statistics.median(us)
    met = gpu.stage_is_met(op, median)
    word = {True: "met", False: "**missed**", None: ""}[met]
    return op, size_text(nbytes), f"{median:.2f} µs", f"{max(us):.2f} µs", word


def gpu_options_part():
    made = []
    for result in gpu.read():
        made += [
            f"{result['gpu']}, driver {result['driver']}; all_reduce of f32, 2 ranks that share it.",
            setting_table(result, "ctas", "thread blocks of a rank", str),
            "Staged (`ORIEL_DIRECT=0`), against `ORIEL_GPU_STAGE`:",
            setting_table(result, "stage", "bytes of a rank", size_text),
            "What the stages of a program cost the thread that starts it, in each execution, once "
            "warm; the bar for initialize is 5 µs:",
            table(["stage", "size", "median", "most", ""],
                  [stage_line(*row) for row in gpu.stage_times(result)]),
        ]
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
        "gpu options": gpu_options_part(),
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
