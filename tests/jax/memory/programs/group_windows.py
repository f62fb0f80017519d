"""Windows over ranks, each with a program of its own: group_windows.py CASE..., in four processes."""

import os
import signal
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import make_mesh, refused, report, run_cases
from jax.sharding import PartitionSpec as P

SHAPE = (5, 3)


def equal(got, wanted):
    np.testing.assert_array_equal(np.asarray(got), wanted)


def meet(group=None):
    jax.block_until_ready(oriel.all_reduce(jnp.ones(1), group=group, tag=f"meet {group}"))


def value(rank):
    return np.full(SHAPE, 2.0**rank, np.float32)


def use(group):
    """A window of a group: its members see each other, and their programs differ."""
    members = range(oriel.size()) if group is None else group.ranks
    w = oriel.window(SHAPE, np.float32, group=group)
    out = oriel.window(SHAPE, np.float32, group=group)
    equal(w.array, np.zeros(SHAPE))
    w.write(value(oriel.rank()))
    meet(group)
    for i, rank in enumerate(members):
        equal(w.read(rank=i), value(rank))
        equal(w.peer(i), value(rank))
    assert w.array.shape == SHAPE and len(w.array.devices()) == 1
    wanted = sum(map(value, members))

    @jax.jit
    def step(w, out):
        x = oriel.load(w) * (oriel.rank() + 1)  # a constant of this rank
        ticket = oriel.all_reduce(w, group=group, into=out)
        return oriel.load(out, after=ticket), oriel.all_reduce(out, after=ticket, group=group), x

    first, second, mine = step(w, out)
    equal(first, wanted)
    equal(second, len(members) * wanted)
    equal(mine, value(oriel.rank()) * (oriel.rank() + 1))
    equal(oriel.all_reduce(w, group=group, tag=f"eager {group}"), wanted)
    ticket = oriel.store(jnp.zeros(SHAPE, np.float32), w)
    equal(oriel.load(w, after=ticket), np.zeros(SHAPE))
    passed = oriel.sendrecv(w, out, oriel.rank(), oriel.rank())
    assert isinstance(passed, jax.Array), passed
    if len(members) == 2:
        other = members[1 - members.index(oriel.rank())]
        w.write(value(oriel.rank()))
        exchanged = jax.jit(lambda w: oriel.sendrecv(w, w, other, other, tag=f"pair {group}"))
        equal(exchanged(w), value(other))
    meet(group)
    w.free()
    refused(lambda: oriel.all_reduce(w, group=group), "freed")


def world():
    use(None)


def groups():
    for ranks in ([2, 0], [3, 1], [1, 3, 0], [2]):
        if oriel.rank() in ranks:
            use(oriel.group(ranks))
    outsider = oriel.group([2, 0])
    if oriel.rank() not in outsider.ranks:
        refused(lambda: oriel.window(SHAPE, "f4", group=outsider), f"rank {oriel.rank()} is not in")


def crossing():
    """Each pair has one, made in the order of the pairs."""
    n, windows = oriel.size(), {}
    for a in range(n):
        for b in range(a + 1, n):
            if oriel.rank() in (a, b):
                windows[a, b] = oriel.window(SHAPE, np.float32, group=oriel.group([b, a]))
    for pair, w in windows.items():
        w.write(np.full(SHAPE, 100 * sum(pair) + oriel.rank(), np.float32))
    meet()
    for (a, b), w in windows.items():
        equal(w.read(rank=0), np.full(SHAPE, 100 * (a + b) + b))
        equal(w.read(rank=1), np.full(SHAPE, 100 * (a + b) + a))
    meet()
    for pair in sorted(windows, key=lambda pair: (pair[1], -pair[0])):
        windows[pair].free()


def larger_mesh():
    """Along one axis of a mesh: peers are those along it."""
    mesh = make_mesh((2, 2), ("y", "x"))
    for axis in ("x", "y"):
        w = oriel.window(SHAPE, np.float32, mesh, axis)
        w.write(value(oriel.rank()))
        meet()
        row, column = divmod(oriel.rank(), 2)
        for i in range(2):
            rank = 2 * row + i if axis == "x" else 2 * i + column
            equal(w.peer(i), value(rank))
        peers = [2 * row, 2 * row + 1] if axis == "x" else [column, 2 + column]
        step = jax.jit(
            jax.shard_map(
                lambda w, axis=axis: oriel.all_reduce(w, axis),
                mesh=mesh,
                in_specs=w.spec,
                out_specs=P("y") if axis == "x" else P("x"),
            )
        )
        got = step(w).addressable_shards[0].data
        equal(got, sum(map(value, peers)))
        meet()


def refusals():
    w = oriel.window(SHAPE, np.float32)
    refused(lambda: oriel.window(SHAPE, "f4", make_mesh((4,), ("x",))), "axis_name is not")
    refused(lambda: w.read(rank=4), "rank is 4, of 4")
    refused(lambda: w.read(rank=-1), "rank is -1")
    refused(lambda: jax.jit(lambda: oriel.load(w))(), "closed over")
    refused(lambda: oriel.store(jnp.ones(2), w), "float32[2]")
    foreign = jax.jit(lambda w: w)(w)
    refused(lambda: foreign.read(), "what a program has", kind=TypeError)
    meet()


def shapes_differ():
    oriel.window((4 + (oriel.rank() == 1),), np.float32)


def killed():
    begun = time.monotonic()
    if oriel.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        oriel.window(SHAPE, np.float32)
    except oriel.OrielError as error:
        report(case="killed", ok=True, text=str(error), seconds=time.monotonic() - begun)
        os._exit(0)


def main():
    oriel.init(distributed="larger_mesh" in sys.argv)
    run_cases(globals(), sys.argv[1:])
    oriel.finalize()


main()
