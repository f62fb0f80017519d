"""From times to rows, and from rows to lines of text."""

import math
import statistics

from oriel.bench.operations import OPERATIONS
from oriel.bench.plan import OURS


def slowest(reports, name):
    """Microseconds of each repetition: a call is over when its last process is."""
    times = zip(*(report["times"][name] for report in reports))
    return [max(of_all) / 1e3 for of_all in times]


def _middle(times):
    """(lower quartile, median, upper quartile)"""
    if len(times) < 2:
        return (times[0],) * 3
    return tuple(statistics.quantiles(times, n=4, method="inclusive"))


def _figures(prefix, times):
    low, median, high = _middle(times)
    names = ("ours_us", "low_us", "high_us", "spread")
    if prefix:
        names = ("peer_us", "peer_low_us", "peer_high_us", "peer_spread")
    values = (round(median, 3), round(low, 3), round(high, 3), round((high - low) / median, 3))
    return dict(zip(names, values, strict=True))


def _ratios(times, peer_times):
    return sorted(theirs / ours for ours, theirs in zip(times, peer_times, strict=True))


def _ratio(plan, times, peer_times):
    """Of C programs the median of the rounds' ratios: a machine whose cores come to share a
    cache, or cease to, does so for longer than a round, so that the two of one round compare
    better than the medians of all. A repetition inside jit is a single call: there it is the
    ratio of the medians."""
    if plan.level == "c":
        return _middle(_ratios(times, peer_times))[1]
    return _middle(peer_times)[1] / _middle(times)[1]


def interval(times, peer_times):
    """Where the median of the repetitions' ratios lies with 95 % confidence, whatever
    their distribution: between two of them, as the sign test has it."""
    ratios = _ratios(times, peer_times)
    n, below, tail = len(ratios), 0, 0.5 ** len(ratios)
    while tail <= 0.025:
        below += 1
        tail += math.comb(n, below) * 0.5**n
    # `below` of them may be left out at either end; with five or fewer none may.
    at = max(below - 1, 0)
    return round(ratios[at], 3), round(ratios[n - 1 - at], 3)


def make_rows(plan, nbytes, samples):
    """One row per peer; without peers, one row that has none. `samples` holds the
    microseconds of ours and of each peer."""
    times = samples[OURS]
    algbw = nbytes / _middle(times)[1] / 1e3
    rows = []
    for peer in plan.peers or [None]:
        row = {
            "op": plan.operation,
            "level": plan.level,
            "ranks": plan.ranks,
            "processes": plan.processes,
            "bytes": nbytes,
            "dtype": plan.dtype,
            "reduction": plan.op if OPERATIONS[plan.operation].reduces else None,
            "repetitions": len(times),
            "algbw": round(algbw, 6),
            "busbw": round(algbw * OPERATIONS[plan.operation].busbw(plan.ranks), 6),
            "peer": peer,
            "ratio": None,
        } | _figures("", times)
        if peer is not None:
            row |= _figures("peer", samples[peer])
            row["ratio"] = round(_ratio(plan, times, samples[peer]), 3)
            row["ratio_low"], row["ratio_high"] = interval(times, samples[peer])
        rows.append(row)
    return rows


# ---- text --------------------------------------------------------------------------


def size_text(nbytes):
    if nbytes == 0:
        return "-"
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def time_text(us):
    if us < 10:
        return f"{us:.2f} us"
    return f"{us:.1f} us" if us < 1e4 else f"{us / 1e3:.1f} ms"


def header(plan):
    peers = "".join(f" {peer:>12} {'spread':>7} {'ratio':>6}" for peer in plan.peers)
    return f"{'size':>8} {'oriel':>12} {'spread':>7} {'algbw':>7} {'busbw':>7}{peers}"


def _verdict(row):
    if "met" not in row:
        return ""
    word = "PASS" if row["met"] else "EVEN" if row["even"] else "MISS"
    return f"  {word} {row['bar']}"


def _speed_text(row, name):
    return f"{row[name]:.3f}" if row["bytes"] > 0 else "-"


def line(rows):
    """The rows of one size, side by side."""
    first = rows[0]
    text = (
        f"{size_text(first['bytes']):>8} {time_text(first['ours_us']):>12} {first['spread']:>7.0%} "
        f"{_speed_text(first, 'algbw'):>7} {_speed_text(first, 'busbw'):>7}"
    )
    for row in rows:
        if row["peer"] is not None:
            text += (
                f" {time_text(row['peer_us']):>12} {row['peer_spread']:>7.0%} {row['ratio']:>6.2f}"
            )
    return text + "".join(_verdict(row) for row in rows)
