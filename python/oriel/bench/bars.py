"""The times oriel promises, and whether a measured row keeps them."""

import dataclasses

_KIB, _MIB = 1 << 10, 1 << 20


@dataclasses.dataclass(frozen=True)
class Bar:
    peer: str
    largest: int  # bytes up to which it holds, from the bar before
    ratio: float  # peer / ours, at least
    within_spread: bool = False  # a shortfall inside the quartiles is none

    def __str__(self):
        return f"{self.peer}/oriel >= {self.ratio:g}{' within spread' * self.within_spread}"


# (processes, devices of each): the bars for that layout
_BARS = {
    (2, 1): (
        Bar("jax", 64 * _KIB, 3.0),
        Bar("jax", 16 * _MIB, 2.0),
        Bar("jax", 64 * _MIB, 1.0),
    ),
    (1, 2): (
        Bar("jax", 64 * _MIB, 1.0, within_spread=True),
        Bar("empty", 64 * _KIB, 1 / 1.25),
    ),
}


def bars_of(plan):
    return _BARS.get((plan.processes, plan.devices), ())


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
