"""Programs run 10,000 times with new contents in new buffers, every result checked on the
device: jax_turns.py [RUNS]. A second program is always in flight beside the first."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax_common import own, row, sharded, spread, start

SIZES = (64, 20000, 400000)


def value(turn, rank, count):
    """What a rank sends in a turn: whole numbers, so that sums are exact in any order."""
    x = turn * jnp.uint32(2654435761) + jnp.uint32(rank) * jnp.uint32(40503)
    x = x + jax.lax.iota(jnp.uint32, count) * jnp.uint32(2246822519)
    x = (x ^ (x >> 15)) * jnp.uint32(2246822519)
    return ((x ^ (x >> 13)) & 0xFFFF).astype(jnp.float32)


def make_step(mesh, sizes, salt):
    n = oriel.size()

    def step(turn, wrong):
        turn, wrong = turn[0], wrong[0]
        rank = jax.lax.axis_index("x").astype(jnp.uint32)
        for count in sizes:
            mine = value(turn + salt, rank, count)
            wanted = sum(value(turn + salt, r, count) for r in range(n))
            wrong += (oriel.all_reduce(mine, "x") != wanted).sum()
            wrong += (
                oriel.all_reduce(-mine, "x", "min")
                != -jnp.stack([value(turn + salt, r, count) for r in range(n)]).max(0)
            ).sum()
        return (turn + 1)[None], wrong[None]

    return jax.jit(sharded(mesh, step, check_vma=False), donate_argnums=(0, 1))


def zeros(mesh, dtype):
    return spread(mesh, np.zeros(oriel.size(), dtype))


def main(runs):
    mesh = start(timeout=20)
    rng = np.random.default_rng(oriel.rank())  # each rank's memory moves in its own way
    first = make_step(mesh, SIZES, 0)
    second = make_step(mesh, SIZES[:2], 77)
    a, b = ((zeros(mesh, np.uint32), zeros(mesh, np.int32)) for _ in range(2))
    began = time.monotonic()
    kept = []
    for run in range(runs):
        a = first(*a)
        if run % 4 == 0:
            b = second(*b)
        if run % 10 == 0:
            kept.append(jnp.full(rng.integers(1, 1 << 20), jnp.nan, jnp.float32))
            if len(kept) > 8:
                kept.pop(rng.integers(8))
        if run % 500 == 0:
            jax.block_until_ready(a)
            print(f"{run} runs after {time.monotonic() - began:.1f} s", flush=True)
    for (turn, wrong), wanted in ((a, runs), (b, (runs + 3) // 4)):
        assert own(turn)[0] == wanted, (own(turn)[0], wanted)
        assert own(wrong)[0] == 0, f"{own(wrong)[0]} elements are wrong"
    oriel.check()
    oriel.finalize()
    row(f"{runs} runs, each checked, a second program in flight")


main(int(sys.argv[1]) if len(sys.argv) > 1 else 10000)
