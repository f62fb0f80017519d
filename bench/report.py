#!/usr/bin/env python3
"""Writes bench/results/*.json into docs/performance.md: its tables, between the
lines <!-- begin NAME --> and <!-- end NAME -->, and its plots, docs/plots/*.svg.

    bench/report.py            write them
    bench/report.py --check    exit with 1 where the tables are not those of the results
"""

import json
import pathlib
import re
import shlex
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "plots"
sys.path.append(str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "python"))  # not what is installed: the page is of this tree

import gpu  # noqa: E402
from oriel.bench import bars  # noqa: E402
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
    for result in results.values():
        note_medians(result)
    if not results:
        sys.exit("there is nothing in bench/results: bench/measure.sh")
    return results


def note_medians(result):
    """For verdicts from before `oriel bench` said so itself."""
    for verdict in result.get("bars", []):
        row = row_of(result, verdict)
        verdict.setdefault("by_median", row is not None and bars.by_median(row))


def table(head, lines):
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [head, rule, *lines])


# ---- the parts of the page ----------------------------------------------------------


def origin(result):
    machine = result["machine"]
    return (machine["cpu"], machine["cores"], f"{machine['memory_gib']} GiB", machine["kernel"],
            f"`{result['commit']}`")  # fmt: skip


def kind_of(name):
    return "from C" if "_c_" in name else "inside jit" if "_jax_" in name else "start-up"


def kinds_text(names, every):
    """As "24 of 24 from C, 1 of 1 start-up": how many of all results of a kind these are."""
    counts = {kind: sum(kind_of(name) == kind for name in names) for kind in map(kind_of, every)}
    total = {kind: sum(kind_of(name) == kind for name in every) for kind in counts}
    return ", ".join(f"{n} of {total[kind]} {kind}" for kind, n in counts.items() if n)


def machine_part(results):
    lines = []
    for key in dict.fromkeys(map(origin, results.values())):
        names = [name for name, result in results.items() if origin(result) == key]
        lines.append((*key, kinds_text(names, results)))
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


def outcome_text(verdicts):
    _, _, even, missed = bars.outcome(verdicts)
    words = [f"even ({even} of {len(verdicts)})"] * (even > 0)
    words += [f"**missed** ({missed} of {len(verdicts)})"] * (missed > 0)
    return ", ".join(words) or "met"


def bars_part(results):
    """A line for each bar: how many sizes keep it, and the least figure."""
    lines = []
    for name, result in results.items():
        verdicts = result.get("bars", [])
        for bar in dict.fromkeys(verdict["bar"] for verdict in verdicts):
            same = [verdict for verdict in verdicts if verdict["bar"] == bar]
            layout = layout_text(name, same[0])
            lines.append((same[0]["op"], layout, bar, worst(same), outcome_text(same)))
    every = [verdict for result in results.values() for verdict in result.get("bars", [])]
    head = ["operation", "layout", "bar", "least figure", ""]
    return f"On CPUs {bars.sentence(every)}. {gpu_sentence()}\n\n{table(head, lines)}"


def gpu_bars():
    return [bar for result in gpu.read() for bar in gpu.bars(result)]


def gpu_sentence():
    judged = gpu_bars()
    met = sum(bar.met for bar in judged)
    if not judged:
        return "None has been measured on a GPU."
    return (
        f"On [a GPU](#on-a-gpu) {met} of {len(judged)} are met, {len(judged) - met} missed. "
        "The table is of CPUs:"
    )


def layout_text(name, verdict):
    if verdict["level"] == "c":
        return f"C, {verdict['processes']} processes"
    return f"JAX, {JAX_LAYOUTS['devices' if 'devices' in name else 'processes']}"


def verdict_lines(results, wanted):
    """Operation, layout, size, bar, figure and interval of the verdicts that `wanted` picks,
    and how they came out."""
    for name, result in results.items():
        for verdict in filter(wanted, result.get("bars", [])):
            row = row_of(result, verdict) or {}
            size = "all" if verdict["bytes"] is None else size_text(verdict["bytes"])
            interval = f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}" if row else ""
            yield (verdict["op"], layout_text(name, verdict), size, verdict["bar"],
                   f"{verdict['figure']:.2f}", interval,
                   outcome_text([verdict]).split(" (")[0])  # fmt: skip


def row_of(result, verdict):
    """The row that a verdict is about; None where it is about several, or has no interval."""
    for row in result["rows"]:
        if (row.get("bytes"), row.get("bar")) == (verdict["bytes"], verdict["bar"]):
            return row if "ratio_low" in row else None
    return None


VERDICT_HEAD = ["operation", "layout", "size", "bar", "figure", "interval"]


def misses_part(results):
    lines = list(verdict_lines(results, lambda verdict: not verdict["met"]))
    lines += [(bar.what, f"GPU, {bar.layout}", size_text(bar.bytes), bar.limit, bar.figure, "",
               "**missed**") for bar in gpu_bars() if not bar.met]  # fmt: skip
    return table([*VERDICT_HEAD, ""], lines) if lines else "None."


def by_median_part(results):
    lines = verdict_lines(results, lambda verdict: verdict.get("by_median", False))
    lines = [line[:-1] for line in lines]
    return table(VERDICT_HEAD, lines) if lines else "None."


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


def rounds_part(results):
    found = [(op, *(results.get(f"{op}_c_{n}", {}).get("rounds", "") for n in (2, 4, 8)))
             for op in OPERATIONS]  # fmt: skip
    return table(["rounds", "2 processes", "4 processes", "8 processes"], found)


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
         f"{row['requests_most']:.0f}", f"{row['reads_mean']:.0f}" if "reads_mean" in row else "",
         *(f"{row[name] / 1024:.0f} KiB"
           for name in ("private_bytes", "touched_bytes", "mapped_bytes", "heap_bytes")))
        for row in results["startup"]["rows"]
    ]  # fmt: skip
    head = ["processes", "slowest create", "beyond process start", "requests, mean",
            "of process 0", "reads", "private", "heap touched", "mapped", "heap"]  # fmt: skip
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


def nccl_table(result, layout, fabric=None):
    by_size = {}
    for way in gpu.WAYS:
        for row in gpu.beside_nccl(result, layout, way, fabric):
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


def jit_table(result, fabric=None):
    lines = [
        (size_text(row.bytes), spread_text(row.ours), spread_text(row.copy),
         ratio_text(row.ours, row.copy),
         f"{statistics.median(row.ours) - statistics.median(row.copy):+.1f} µs",
         spread_text(row.psum), ratio_text(row.ours, row.psum))
        for row in gpu.jit_times(result, fabric)
    ]  # fmt: skip
    return table(["size", "all_reduce", "an FFI call that copies", "ratio", "more", "lax.psum",
                  "ratio"], lines)  # fmt: skip


COSTS = {"none": "none", "xla": "XLA's, borrowed", "own": "oriel's own (`ORIEL_FABRIC=nccl`)"}


def cost_table(result):
    lines = [
        (COSTS[s["way"]], "yes" if s["psum"] else "", f"{s['init_s']:.2f} s",
         f"{s['first_s'] * 1e3:.0f} ms", f"{s['used_mib']} MiB", us_text(s["small_us"]),
         us_text(s["large_us"]))
        for s in gpu.samples(result, "jax cost")
    ]  # fmt: skip
    return table(["communicator", "and `lax.psum`", "init", "first execution", "memory",
                  "1 KiB", "16 MiB, in a chain of 20"], lines)  # fmt: skip


def commit_text(result):
    return f", commit `{result['commit']}`" if "commit" in result else ""


def gpu_part():
    made = []
    for result in gpu.read():
        judged = gpu.bars(result)
        shares = list(gpu.share_bars(result))
        shown = [bar for bar in judged if bar in shares or not bar.met]
        shared = "All ranks share one GPU"
        made += [
            f"{result['gpu']}, driver {result['driver']}{commit_text(result)}. **{shared}.** "
            f"{sum(bar.met for bar in judged)} of {len(judged)} bars are met; those of bandwidth, "
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
        for layout in gpu.nccl_layouts(result, "nccl"):
            made += [
                f"all_reduce on the nccl fabric beside `ncclAllReduce`, both on the same windows, "
                f"{gpu.layout_text(layout)}. {shared}; the ratio is to NCCL on windows:",
                nccl_table(result, layout, "nccl"),
            ]
        made += [
            f"Inside jit, 2 processes, MPS, ± half the distance of the quartiles. {shared}:",
            jit_table(result),
        ]
        for fabric, text in (("nccl", "on the nccl fabric"), ("xla", "with XLA's communicator")):
            if any(gpu.jit_times(result, fabric)):
                made += [f"The same {text}:", jit_table(result, fabric)]
        if gpu.samples(result, "jax cost"):
            made += [
                "What a communicator costs: one run of a program with one all_reduce, 2 processes, "
                f"MPS; memory is all that is used of the GPU. {shared}:",
                cost_table(result),
            ]
        made += [f"Not measured: {what}." for what in gpu.unmeasured(result)]
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
            table(
                ["stage", "size", "median", "most", ""],
                [stage_line(*row) for row in gpu.stage_times(result)],
            ),
        ]
    return "\n\n".join(made) or "Not measured."


def command_text(name, command):
    """The command that makes the file anew, wherever it wrote it then."""
    words = shlex.split(command)
    if "--json" in words:
        words[words.index("--json") + 1] = f"bench/results/{name}.json"
    return shlex.join(words)


def commands_part(results):
    lines = [command_text(name, result["command"]) for name, result in results.items()]
    return "\n".join(["```", *lines, "```"])


def parts(results):
    made = {
        "machine": machine_part(results),
        "bars": bars_part(results),
        "misses": misses_part(results),
        "by median": by_median_part(results),
        "rounds": rounds_part(results),
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
    from oriel.bench import plot  # needs matplotlib

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
