"""From the times of all processes to rows, and from rows to lines of text."""

import statistics

from oriel.bench import bars
from oriel.bench.plan import OURS


def middle(times):
    """(median in microseconds, distance of the quartiles as a share of it)"""
    median = statistics.median(times)
    if len(times) < 2:
        return median / 1e3, 0.0
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return median / 1e3, (high - low) / median


def slowest(reports, name):
    """A call is over when its last process is: the longest of each repetition."""
    return [max(times) for times in zip(*(report["times"][name] for report in reports))]


def make_rows(plan, nbytes, reports, checked):
    """One row per peer; without peers, one row that has none."""
    ours_us, spread = middle(slowest(reports, OURS))
    rows = []
    for peer in plan.peers or [None]:
        peer_us, peer_spread = middle(slowest(reports, peer)) if peer else (None, None)
        row = {
            "op": plan.operation,
            "ranks": plan.ranks,
            "processes": plan.processes,
            "bytes": nbytes,
            "dtype": plan.dtype,
            "reduction": plan.op,
            "ours_us": round(ours_us, 2),
            "spread": round(spread, 3),
            "peer": peer,
            "peer_us": peer and round(peer_us, 2),
            "peer_spread": peer and round(peer_spread, 3),
            "ratio": peer and round(peer_us / ours_us, 3),
            "repetitions": len(reports[0]["times"][OURS]),
        }
        bar = bars.bar_of(plan, row) if checked else None
        if bar is not None:
            row["bar"] = str(bar)
            row["met"] = bars.is_met(bar, row)
        rows.append(row)
    return rows


# ---- text --------------------------------------------------------------------------


def size_text(nbytes):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def _time_text(us):
    return f"{us:.1f} us" if us < 1e4 else f"{us / 1e3:.1f} ms"


def header(plan):
    peers = "".join(f" {peer:>12} {'spread':>7} {'ratio':>6}" for peer in plan.peers)
    return f"{'size':>8} {'oriel':>12} {'spread':>7} {'algbw':>7} {'busbw':>7}{peers}"


def _verdict(row):
    if "met" not in row:
        return ""
    word = "PASS" if row["met"] else "MISS"
    return f"  {word} {row['bar']}"


def line(plan, rows):
    """The rows of one size, side by side."""
    first = rows[0]
    algbw = first["bytes"] / first["ours_us"] / 1e3
    busbw = algbw * 2 * (plan.ranks - 1) / plan.ranks
    text = (
        f"{size_text(first['bytes']):>8} {_time_text(first['ours_us']):>12} "
        f"{first['spread']:>7.0%} {algbw:>7.3f} {busbw:>7.3f}"
    )
    for row in rows:
        if row["peer"] is not None:
            text += (
                f" {_time_text(row['peer_us']):>12} {row['peer_spread']:>7.0%} {row['ratio']:>6.2f}"
            )
    return text + "".join(_verdict(row) for row in rows)
