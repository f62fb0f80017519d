"""The operations one can measure, and what their sizes mean."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Operation:
    busbw: Callable[[int], float]  # busbw / algbw for n ranks
    divided: bool = False  # the larger side holds one block for each rank
    reduces: bool = False
    sized: bool = True  # moves bytes at all


def ragged_begin(n, distance, elements):
    """Where the part for the rank `distance` further on begins: the parts are in
    proportion to 1, 3, 1, 3, ..., the same as in c/loop.h."""
    weight = lambda d: d // 2 * 4 + d % 2  # noqa: E731
    return elements * weight(distance) // weight(n)


def _ragged_busbw(n):
    """What leaves a rank: all but its own part, the first."""
    return 1 - ragged_begin(n, 1, 1 << 20) / (1 << 20)


OPERATIONS = {
    "all_reduce": Operation(lambda n: 2 * (n - 1) / n, reduces=True),
    "all_gather": Operation(lambda n: (n - 1) / n, divided=True),
    "reduce_scatter": Operation(lambda n: (n - 1) / n, divided=True, reduces=True),
    "all_to_all": Operation(lambda n: (n - 1) / n, divided=True),
    "broadcast": Operation(lambda n: 1.0),
    "permute": Operation(lambda n: 1.0),
    "barrier": Operation(lambda n: 0.0, sized=False),
    "ragged_all_to_all": Operation(_ragged_busbw),
}
