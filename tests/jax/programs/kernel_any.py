"""Random calls of the kernels over random axes, compared with NumPy.

kernel_any.py NUMBER SEED"""

import random
import sys

import cases
import numpy as np
import oriel
from common import local_parts, make_mesh, report, sharded, spread
from jax.sharding import PartitionSpec as P
from kernels import TYPES, several

SHAPES = [(1,), (7,), (3, 5), (1000,), (2, 513), (70_001,)]


def draw(pick, n):
    """(mesh shape, axis names, axes of the call)"""
    if n % 2 == 0 and pick([True, False]):
        return (2, n // 2), ("x", "y"), pick([("x",), ("y",), ("x", "y"), ("y", "x")])
    return (n,), ("x",), ("x",)


def expected(name, parts, shape, names, axes, op, hops):
    """What each device gets, by its place in the mesh."""
    places = np.arange(len(parts)).reshape(shape)
    joined = [names.index(a) for a in axes]
    kept = [i for i in range(len(names)) if i not in joined]
    size = int(np.prod([shape[i] for i in joined]))
    results = [None] * len(parts)
    for group in np.transpose(places, kept + joined).reshape(-1, size):
        for i, place in enumerate(group):
            if name == "gather":
                results[place] = parts[group]
            elif name == "pass_on":
                results[place] = parts[group[(i - hops) % size]]
            else:
                results[place] = cases.by_hand(parts[group], op.lower())
    return np.stack(results)


def main():
    number, seed = int(sys.argv[1]), int(sys.argv[2])
    oriel.init()
    dice = random.Random(seed)
    wrong = []
    for i in range(number):
        shape, names, axes = draw(dice.choice, oriel.size())
        dtype, op = np.dtype(dice.choice(sorted(TYPES))), dice.choice(["SUM", "MIN", "MAX"])
        name = dice.choice(["reduce", "reduce_all", "gather", "pass_on"])
        local, hops = dice.choice(SHAPES), dice.randrange(4)
        kernel = getattr(several(dtype, op), name)
        parts = cases.draw_values(np.random.default_rng(i), (oriel.size(), *local), dtype)
        want = expected(name, parts, shape, names, axes, op, max(hops, 1))
        mesh = make_mesh(shape, names)

        def function(v):
            if name == "gather":
                return kernel(v[0], out=want.shape[1:], axis_name=axes)[None]
            if name == "pass_on":
                return kernel(v[0], hops=max(hops, 1), axis_name=axes)[0][None]
            return kernel(v[0], axis_name=axes)[None]

        got = sharded(mesh, function, P(names), P(names))(spread(mesh, parts, P(names)))
        here = [s.index[0].start or 0 for s in got.addressable_shards]
        for place, part in zip(here, local_parts(got)):
            if not np.array_equal(part[0].view(np.uint8), want[place].view(np.uint8)):
                wrong.append([i, name, dtype.name, op, str(local), str(axes)])
    report(wrong=wrong)
    oriel.finalize()


main()
