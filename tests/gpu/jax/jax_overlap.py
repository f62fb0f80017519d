"""oriel's operations and `lax.psum` in one program, independent of each other, so that XLA
overlaps them; right in each of 10,000 iterations: jax_overlap.py [ITERATIONS [LARGE]], the
elements of the larger ones. Needs NCCL 2.30, preloaded."""

import re
import sys

import numpy as np
import oriel
from jax import lax
from jax_common import nccl_refusal, own, row, sharded, spread, start

TURNS = 100  # of the loop in a program


def iteration(i, wrong, operands, sums):
    """Adds the number of elements that are not what they should be. All are whole numbers,
    and what is summed depends on the iteration."""
    small, large = operands
    sum_of_small, sum_of_large = sums
    n = oriel.size()
    got = (
        (oriel.all_reduce(large + i, "x"), sum_of_large + n * i),
        (lax.psum(small - i, "x"), sum_of_small - n * i),
        (oriel.all_reduce(small + i, "x"), sum_of_small + n * i),
        (lax.psum(large - i, "x"), sum_of_large - n * i),
    )
    for value, wanted in got:
        wrong = wrong + (value != wanted).sum(dtype=np.int32)
    return wrong


def arrays(mesh, count, rng):
    x = rng.integers(-1000, 1000, (oriel.size(), count)).astype(np.float32)
    return spread(mesh, x), spread(mesh, np.broadcast_to(x.sum(0), x.shape))


def overlapped(text):
    """How often a call of ours stands between begin and end of one of NCCL's."""
    words = re.findall(r"all-reduce-start\(|all-reduce-done\(|custom_call_target=\"oriel", text)
    open_now = found = 0
    for word in words:
        open_now += word.startswith("all-reduce-start") - word.startswith("all-reduce-done")
        found += word.startswith("custom") and open_now > 0
    return found


def check(mesh, name, function, executions, turns, count, rng):
    """`function` does `turns` iterations; its executions follow each other without a wait."""
    small, sum_of_small = arrays(mesh, 1000, rng)
    large, sum_of_large = arrays(mesh, count, rng)
    step = sharded(mesh, function, check_vma=False)
    n = oriel.size()
    wrong = spread(mesh, np.zeros((n, 1), np.int32))
    operands, sums = (small, large), (sum_of_small, sum_of_large)
    begin = spread(mesh, np.zeros((n, 1), np.float32))
    step = step.lower(begin, wrong, operands, sums).compile()
    between = overlapped(step.as_text())
    assert between > 0, f"{name}: XLA has put nothing of oriel beside NCCL"
    print(f"{name}: {between} of oriel's calls beside NCCL", flush=True)
    for _ in range(executions):
        begin, wrong = step(begin, wrong, operands, sums)
    found = own(wrong)[0, 0]
    assert found == 0, f"{name}: {found} elements are wrong"
    assert own(begin)[0, 0] == executions * turns
    row(f"{name}, {executions * turns} iterations")


def straight(begin, wrong, operands, sums):
    return begin + 1, iteration(begin, wrong, operands, sums)


def loop(begin, wrong, operands, sums):
    wrong = lax.fori_loop(0, TURNS, lambda i, w: iteration(begin + i, w, operands, sums), wrong)
    return begin + TURNS, wrong


def main(iterations=10000, large=1 << 18):
    refusal = nccl_refusal()
    if refusal:
        print(refusal, flush=True)
        sys.exit(77)
    mesh = start(timeout=20)
    rng = np.random.default_rng(1)
    iterations, large = int(iterations), int(large)
    check(mesh, "executions", straight, iterations, 1, large, rng)
    check(mesh, "a loop", loop, iterations // TURNS, TURNS, large, rng)
    oriel.check()
    oriel.finalize()
    row("end")


main(*sys.argv[1:])
