"""The times oriel promises, and whether what was measured keeps them."""

import dataclasses
import statistics

_KIB, _MIB = 1 << 10, 1 << 20


@dataclasses.dataclass(frozen=True)
class Bar:
    peer: str
    largest: int  # bytes up to which it holds, from the bar before
    ratio: float  # peer / ours, at least
    within_spread: bool = False  # a shortfall inside the quartiles is none

    def __str__(self):
        return f"{self.peer}/oriel >= {self.ratio:g}{' within spread' * self.within_spread}"


# From C a bar is a mean: one size on a noisy machine says little. None falls far below, though.
_EACH_SIZE = {None: (Bar("mpi", 64 * _MIB, 0.85),)}
_MEAN = {"all_reduce": 1.5, None: 1.2}  # over the sizes

# (level, processes, devices of each): the bars of an operation for that layout;
# None stands for every operation that is not named
_BARS = {
    ("jax", 2, 1): {
        "all_reduce": (
            Bar("jax", 64 * _KIB, 3.0),
            Bar("jax", 16 * _MIB, 2.0),
            Bar("jax", 64 * _MIB, 1.0),
        )
    },
    ("jax", 1, 2): {
        "all_reduce": (
            Bar("jax", 64 * _MIB, 1.0, within_spread=True),
            Bar("empty", 64 * _KIB, 1 / 1.25),
        )
    },
    ("c", 2, 1): _EACH_SIZE,
    ("c", 4, 1): _EACH_SIZE,
    ("c", 8, 1): _EACH_SIZE,
}


def bars_of(plan):
    of_layout = _BARS.get((plan.level, plan.processes, plan.devices), {})
    return of_layout.get(plan.operation, of_layout.get(None, ()))


def peers_of(plan):
    """The peers that the bars of a layout compare with."""
    return list(dict.fromkeys(bar.peer for bar in bars_of(plan)))


def bar_of(plan, row):
    """The bar for a row, or None where nothing is promised."""
    for bar in bars_of(plan):
        if bar.peer == row["peer"] and row["bytes"] <= bar.largest:
            return bar
    return None


def is_met(bar, row):
    # The spread reaches from quartile to quartile, so half of it to each side.
    slack = max(row["spread"], row["peer_spread"]) / 2 if bar.within_spread else 0.0
    return row["ratio"] >= bar.ratio - slack


def is_even(bar, row):
    """Whether the repetitions do not tell the ratio apart from its bar."""
    return row["ratio_low"] <= bar.ratio <= row["ratio_high"]


def by_median(row):
    """Whether a row that was judged meets its bar by its median alone: the interval of its
    repetitions reaches below the bar. The bar is that of its text, whenever it was judged."""
    least = float(row["bar"].split()[2])
    return row["met"] and row["ratio_low"] < least


def judge(plan, rows):
    """Writes bar, met and even into the rows of a plan; returns all verdicts, the one
    over all sizes among them, as a list of dicts."""
    verdicts = []
    for row in rows:
        bar = bar_of(plan, row)
        if bar is not None:
            row |= {"bar": str(bar), "met": is_met(bar, row), "even": is_even(bar, row)}
            verdict = _verdict(plan, row["bytes"], row["bar"], row["ratio"], row["met"])
            verdicts.append(verdict | {"even": row["even"], "by_median": by_median(row)})
    ratios = [row["ratio"] for row in rows if row["peer"] == "mpi"]
    if ratios and bars_of(plan):
        mean = statistics.geometric_mean(ratios)
        least = _MEAN.get(plan.operation, _MEAN[None])
        text = f"mpi/oriel >= {least:g} in the geometric mean"
        verdicts.append(_verdict(plan, None, text, round(mean, 3), mean >= least))
    return verdicts


def _verdict(plan, nbytes, bar, figure, met):
    return {
        "op": plan.operation,
        "level": plan.level,
        "processes": plan.processes,
        "ranks": plan.ranks,
        "bytes": nbytes,  # None: all sizes together
        "bar": bar,
        "figure": figure,
        "met": met,
        "even": False,  # not told apart from the bar
        "by_median": False,  # met, while its interval reaches below the bar
    }


def outcome(verdicts):
    """(met, of those by the median alone, even, missed): how many of them"""
    met = [verdict for verdict in verdicts if verdict["met"]]
    even = sum(not verdict["met"] and verdict.get("even", False) for verdict in verdicts)
    alone = sum(verdict.get("by_median", False) for verdict in met)
    return len(met), alone, even, len(verdicts) - len(met) - even


def sentence(verdicts):
    met, alone, even, missed = outcome(verdicts)
    words = f", {alone} of them by the median alone" if alone else ""
    return f"{met} of {len(verdicts)} bars are met{words}; {even} are even, {missed} missed"
