"""Plots of what was measured: time, bandwidth and ratio over the size."""

import math
import pathlib

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter  # noqa: E402

from oriel.bench.operations import OPERATIONS  # noqa: E402
from oriel.bench.table import size_text  # noqa: E402

_INK, _FAINT = "#222222", "#8a8a8a"
# Okabe and Ito's colours, told apart by colour-blind readers; the marks tell them
# apart in grey print.
_LOOKS = {
    "oriel": ("#0072B2", "o"),
    "mpi": ("#D55E00", "s"),
    "jax": ("#009E73", "^"),
    "empty": ("#7F7F7F", "D"),
}
_NAMES = {"mpi": "Open MPI", "jax": "lax", "empty": "empty call"}
_STYLE = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "lines.linewidth": 1.6,
    "lines.markersize": 3.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "oriel",  # the same figures give the same file
}


def save(figure, path):
    """As SVG or PNG by the ending of `path`; without one, as both."""
    path = pathlib.Path(path)
    targets = [path] if path.suffix else [path.with_suffix(".svg"), path.with_suffix(".png")]
    for target in targets:
        metadata = {"Date": None} if target.suffix == ".svg" else None
        figure.savefig(target, dpi=160, metadata=metadata)
    pyplot.close(figure)


# ---- the figures of one curve ----------------------------------------------------


def _curves(rows):
    """name: (sizes, medians, lower quartiles, upper quartiles) in microseconds"""
    peers = [peer for peer in dict.fromkeys(row["peer"] for row in rows) if peer is not None]
    mine = [row for row in rows if row["peer"] == rows[0]["peer"]]
    pick = lambda part, *names: tuple([row[name] for row in part] for name in names)  # noqa: E731
    curves = {"oriel": pick(mine, "bytes", "ours_us", "low_us", "high_us")}
    for peer in peers:
        part = [row for row in rows if row["peer"] == peer]
        curves[peer] = pick(part, "bytes", "peer_us", "peer_low_us", "peer_high_us")
    return curves


def _ratios(rows, peer):
    """(sizes, ratios, least, most): the quartiles at their worst and at their best"""
    part = [row for row in rows if row["peer"] == peer]
    return (
        [row["bytes"] for row in part],
        [row["ratio"] for row in part],
        [row["peer_low_us"] / row["high_us"] for row in part],
        [row["peer_high_us"] / row["low_us"] for row in part],
    )


# ---- axes ------------------------------------------------------------------------


def _time_tick(us, _):
    if us >= 1e6:
        return f"{us / 1e6:g} s"
    return f"{us / 1e3:g} ms" if us >= 1e3 else f"{us:g} µs"


def _size_axis(axes, sizes):
    """Ticks at powers of 64: few enough to read."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(sizes) / 1.3, max(sizes) * 1.3)
    ticks = [64**k for k in range(7) if min(sizes) <= 64**k <= max(sizes)]
    axes.xaxis.set_major_locator(FixedLocator(ticks if len(ticks) > 1 else sorted(set(sizes))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(int(size))))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()


def _log_axis(axes, formatter):
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1, 1.5, 2, 3, 5, 7) if high / low < 6 else (1, 2, 5) if high / low < 50 else (1,)
    axes.yaxis.set_major_locator(LogLocator(10, subs=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(formatter))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)


def _line(axes, name, xs, ys, low=None, high=None):
    colour, mark = _LOOKS[name]
    axes.plot(xs, ys, color=colour, marker=mark, zorder=3 if name == "oriel" else 2)
    if low is not None:
        axes.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0)


def _label_ends(axes, ends):
    """Names at the right ends of the lines, moved apart where they would touch.
    `ends` is a list of (text, colour, y)."""
    axes.figure.canvas.draw()
    height = 11 * axes.figure.dpi / 72
    right = axes.transAxes.transform((1.0, 0.0))[0]
    placed = []
    for text, colour, y in sorted(ends, key=lambda end: end[2]):
        at = axes.transData.transform((axes.get_xlim()[1], y))[1]
        if placed:
            at = max(at, placed[-1][2] + height)
        placed.append((text, colour, at))
    for text, colour, at in placed:
        x, y = axes.transAxes.inverted().transform((right, at))
        axes.text(x + 0.015, y, text, color=colour, transform=axes.transAxes, va="center")


# ---- panels ----------------------------------------------------------------------


def _draw_time(axes, rows):
    curves = _curves(rows)
    for name, (sizes, us, low, high) in curves.items():
        _line(axes, name, sizes, us, low, high)
    axes.set_title("time of a call")
    _log_axis(axes, _time_tick)
    return [(_NAMES.get(n, n), _LOOKS[n][0], us[-1]) for n, (_, us, _, _) in curves.items()]


def _draw_speed(axes, rows):
    factor = OPERATIONS[rows[0]["op"]].busbw(rows[0]["ranks"])
    ends = []
    for name, (sizes, *times) in _curves(rows).items():
        if name == "empty":
            continue  # it moves nothing
        speeds = [[s * factor / us / 1e3 for s, us in zip(sizes, part)] for part in times]
        _line(axes, name, sizes, *speeds)
        ends.append((_NAMES.get(name, name), _LOOKS[name][0], speeds[0][-1]))
    axes.set_title("bus bandwidth, GB/s")
    _log_axis(axes, lambda value, _: f"{value:g}")
    return ends


def _draw_ratio(axes, rows):
    rows = [row for row in rows if row["peer"] != "empty"]  # a floor, not a rival
    ends = []
    for peer in dict.fromkeys(row["peer"] for row in rows):
        sizes, ratios, least, most = _ratios(rows, peer)
        _line(axes, peer, sizes, ratios, least, most)
        ends.append((_NAMES[peer], _LOOKS[peer][0], ratios[-1]))
    axes.axhline(1, color=_INK, linewidth=0.9, zorder=1)
    axes.set_title("peer's time / oriel's")
    # The medians decide: one wild quartile must not flatten the curves.
    medians = [row["ratio"] for row in rows]
    axes.set_yscale("log")
    axes.set_ylim(min(0.75, min(medians) / 1.5), max(1.33, max(medians) * 1.5))
    _log_axis(axes, lambda value, _: f"{value:g}")
    return ends


def _draw_dots(axes, rows):
    """An operation without sizes: one dot each, with its quartiles."""
    curves = _curves(rows)
    for y, (name, (_, us, low, high)) in enumerate(curves.items()):
        colour, mark = _LOOKS[name]
        axes.plot([low[0], high[0]], [-y, -y], color=colour, alpha=0.35, linewidth=5)
        axes.plot(us, [-y], color=colour, marker=mark, markersize=6)
        text = f"{_NAMES.get(name, name)}  {_time_tick(float(f'{us[0]:.3g}'), None)}"
        axes.annotate(text, (us[0], -y), (0, 8), textcoords="offset points", color=colour)
    axes.set_ylim(-len(curves) + 0.5, 0.7)
    axes.set_xlim(0, 1.5 * max(high[0] for _, _, _, high in curves.values()))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("time of a call, µs")


def _title(rows):
    first = rows[0]
    processes = f"{first['processes']} process{'es' if first['processes'] > 1 else ''}"
    devices = first["ranks"] // first["processes"]
    if first["level"] == "c":
        return f"{first['op']}, {processes}, from C"
    each = f", {devices} devices each" if devices > 1 else ""
    return f"{first['op']}, {processes}{each}, inside jax.jit"


def _footnote(result, marks="line: median, band: quartiles"):
    machine = result["machine"]
    parts = [f"{machine['cpu']}, {machine['cores']} cores", f"commit {result['commit']}"]
    if "mpi" in result:
        parts.append(result["mpi"]["version"])
    parts.append(marks)
    return "  ·  ".join(parts)


def _draw_layout(part, rows):
    part.suptitle(_title(rows), x=0.01, ha="left", fontsize=11, fontweight="bold")
    if rows[0]["bytes"] == 0:
        _draw_dots(part.subplots(1, 1), rows)
        return
    rivals = {row["peer"] for row in rows} - {None, "empty"}
    panels = [_draw_time, _draw_speed] + ([_draw_ratio] if rivals else [])
    every = part.subplots(1, len(panels))
    part.subplots_adjust(left=0.055, right=0.93, top=0.82, bottom=0.14, wspace=0.42)
    for axes, panel in zip(every, panels, strict=True):
        ends = panel(axes, rows)
        _size_axis(axes, [row["bytes"] for row in rows])
        _label_ends(axes, ends)


def _layout(row):
    return row["level"], row["processes"], row["ranks"]


def draw(result):
    """The figure of a result as the JSON has it: one line of panels per level and
    layout."""
    rows = result["rows"]
    layouts = list(dict.fromkeys(map(_layout, rows)))
    sized = rows[0]["bytes"] > 0
    with pyplot.rc_context(_STYLE):
        size = (12, 3.5 * len(layouts) + 0.2) if sized else (6, 2.4 * len(layouts) + 0.2)
        figure = pyplot.figure(figsize=size)
        parts = figure.subfigures(len(layouts), 1, squeeze=False)[:, 0]
        for part, layout in zip(parts, layouts, strict=True):
            if not sized:
                part.subplots_adjust(top=0.8, bottom=0.25, left=0.05, right=0.95)
            _draw_layout(part, [row for row in rows if _layout(row) == layout])
        figure.text(0.01, 0.008, _footnote(result), color=_FAINT, fontsize=7)
    return figure


# ---- all operations at a glance --------------------------------------------------

_SHADES = {2: "#0072B2", 4: "#56B4E9", 8: "#E69F00"}  # by processes


def _draw_small(axes, operation, rows, limits):
    counts = sorted({row["processes"] for row in rows})
    ends = []
    for n in counts:
        part = [row for row in rows if row["processes"] == n]
        colour = _SHADES.get(n, _FAINT)
        axes.plot([row["bytes"] for row in part], [row["ratio"] for row in part], color=colour)
        ends.append((f"{n}", colour, part[-1]["ratio"]))
    axes.axhline(1, color=_INK, linewidth=0.9, zorder=1)
    axes.set_title(operation)
    axes.set_yscale("log")
    axes.set_ylim(limits)
    _log_axis(axes, lambda value, _: f"{value:g}")
    _size_axis(axes, [row["bytes"] for row in rows])
    _label_ends(axes, ends)


def draw_overview(results):
    """Open MPI's time over oriel's, a small panel for each operation, a line for
    each number of processes."""
    rows = [row for result in results for row in result["rows"] if row.get("peer") == "mpi"]
    names = [name for name in OPERATIONS if any(row["op"] == name for row in rows)]
    names = [name for name in names if OPERATIONS[name].sized]
    ratios = [row["ratio"] for row in rows]
    limits = min(0.75, min(ratios) / 1.2), max(1.33, max(ratios) * 1.2)
    across = min(4, len(names))
    down = -(-len(names) // across)
    with pyplot.rc_context(_STYLE):
        figure = pyplot.figure(figsize=(12, 2.6 * down + 0.8))
        figure.suptitle(
            "Open MPI's time / oriel's, from C, with 2, 4 and 8 processes: above 1 oriel is faster",
            x=0.01, ha="left", fontsize=11, fontweight="bold",
        )  # fmt: skip
        grid = figure.subplots(down, across, squeeze=False).ravel()
        figure.subplots_adjust(
            left=0.045, right=0.97, top=1 - 0.75 / (2.6 * down + 0.8), bottom=0.1, wspace=0.3,
            hspace=0.5,
        )  # fmt: skip
        for axes, name in zip(grid, names):
            _draw_small(axes, name, [row for row in rows if row["op"] == name], limits)
        for axes in grid[len(names) :]:
            axes.set_visible(False)
        figure.text(0.01, 0.008, _footnote(results[0], "line: median"), color=_FAINT, fontsize=7)
    return figure


# ---- start-up --------------------------------------------------------------------


def _draw_startup(axes, rows, title, names, formatter, base):
    counts = [row["processes"] for row in rows]
    looks = list(_LOOKS.values())
    ends = []
    for (field, label), (colour, mark) in zip(names.items(), looks):
        if field not in rows[0]:  # of an older result
            continue
        values = [row[field] or math.nan for row in rows]  # a logarithm has no place for 0
        axes.plot(counts, values, color=colour, marker=mark)
        if f"{field}_low" in rows[0]:
            low, high = ([row[f"{field}_{end}"] for row in rows] for end in ("low", "high"))
            axes.fill_between(counts, low, high, color=colour, alpha=0.18, linewidth=0)
        ends.append((label, colour, values[-1]))
    axes.set_title(title)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:g}"))
    axes.set_xlabel("processes")
    axes.set_yscale("log", base=base)
    axes.yaxis.set_major_formatter(FuncFormatter(formatter))
    axes.minorticks_off()
    _label_ends(axes, ends)


def _second_tick(s, _):
    return f"{s:g} s" if s >= 1 else f"{s * 1e3:g} ms"


def _kib_tick(nbytes, _):
    return f"{nbytes / 1024:g} KiB" if nbytes < 1 << 20 else f"{nbytes / (1 << 20):g} MiB"


# title, fields with their labels, how the axis is written, the ticks' base
_STARTUP = (
    (
        "time of oriel_comm_create",
        {"beyond_s": "beyond start", "create_s": "slowest call"},
        _second_tick,
        10,
    ),
    (
        "requests to the store, memory reads",
        {"requests_mean": "requests", "requests_most": "process 0", "reads_mean": "reads"},
        lambda value, _: f"{value:g}",
        2,
    ),
    (
        "memory per process",
        {
            "heap_bytes": "heap",
            "touched_bytes": "of it touched",
            "private_bytes": "private",
            "mapped_bytes": "mapped",
        },
        _kib_tick,
        4,
    ),
)


def draw_startup(result):
    rows = result["rows"]
    with pyplot.rc_context(_STYLE):
        figure, panels = pyplot.subplots(1, 3, figsize=(12, 3.7))
        figure.subplots_adjust(left=0.055, right=0.9, top=0.82, bottom=0.2, wspace=0.6)
        figure.suptitle(
            "start-up on one machine", x=0.01, ha="left", fontsize=11, fontweight="bold"
        )
        for axes, panel in zip(panels, _STARTUP, strict=True):
            _draw_startup(axes, rows, *panel)
        figure.text(
            0.01,
            0.008,
            _footnote(result, "line: median, band: least and most"),
            color=_FAINT,
            fontsize=7,
        )
    return figure
