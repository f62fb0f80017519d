"""Windows that XLA or somebody else has a second time, and those of a program under two names:
aliases.py CASE..., each in the world of one job."""

import gc
import threading

import jax
import numpy as np
import oriel
from common import local_parts, make_mesh
from jax.sharding import PartitionSpec as P
from over_mesh import (
    SHAPE,
    each,
    equal,
    filled,
    main,
    mesh,
    over,
    value,
    values,
)

BOTH = P("x"), P("x")
ONES = np.ones(SHAPE, np.float32)
UNORDERED = "nothing says which is first"


def doubled(w):
    return oriel.store(oriel.load(w) * 2, w)


# ---- outside of programs --------------------------------------------------------------------


def kept():
    """A look waits for programs, and for nobody who keeps what these were given."""
    w, step = filled(), over(doubled, P("x"))
    again = [jax.tree.map(lambda x: x, w)]
    for i in range(1, 4):
        step(w)
        each(w.array, [2**i * v for v in values()])
        equal(w.read(), 2**i * value(oriel.rank()))
        again.append(jax.jit(lambda w: w)(w))
    step(again[0])
    each(w.array, [16 * v for v in values()])


def orders_of_devices():
    """A mesh whose devices are in another order than the ranks."""
    n = oriel.size()
    order = [*range(0, n, 2), *range(1, n, 2)][::-1]
    w = oriel.window(SHAPE, np.float32, make_mesh((n,), ("x",), order), "x")
    w.write(np.concatenate(values()))
    step = jax.shard_map(
        lambda w: oriel.permute(w, "x", [(i, (i + 1) % n) for i in range(n)], into=w),
        mesh=w.array.sharding.mesh,
        in_specs=w.spec,
        out_specs=P("x"),
    )
    for moved in range(2):
        for i, device in enumerate(jax.local_devices()):
            place = order.index(oriel.rank() + i)
            equal(w.read(device=device), value((place - moved) % n))
            equal(w.read(), w.array.addressable_shards[0].data)
        jax.block_until_ready(jax.jit(step)(w))


def cached():
    """Programs are those of all windows of a kind; one that is compiled ahead takes any."""
    step = over(doubled, P("x"))
    some = [filled() for _ in range(3)]
    ahead = step.lower(some[0]).compile()
    for w in some:
        step(w)
        ahead(w)
        each(w.array, [4 * v for v in values()])
    assert step._cache_size() == 1
    with jax.set_mesh(mesh()):
        w = oriel.window(SHAPE, np.float32, axis_name="x")
        w.write(ONES)
        jax.block_until_ready(jax.jit(jax.shard_map(doubled, in_specs=w.spec, out_specs=P("x")))(w))
        equal(w.read(), 2 * ONES)


def dropped():
    """Many windows that nobody frees, while Python collects garbage at every turn."""
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    step, kept = over(doubled, P("x")), filled()
    for i in range(300):
        w = oriel.window(SHAPE, np.float32, mesh(), "x")
        if i % 50 == 0:
            step(w)
            step(kept)
    gc.set_threshold(*thresholds)
    for _ in range(700):
        w = oriel.window(SHAPE, np.float32, mesh(), "x")
    equal(w.read(), 0 * ONES)
    each(kept.array, [64 * v for v in values()])


def threads():
    """One thread looks while others call programs that read."""
    w, wrong = filled(), []
    step = jax.jit(lambda v: v + 1)

    def look():
        for _ in range(50):
            if not np.array_equal(w.read(), value(oriel.rank())):
                wrong.append("look")

    def call():
        for _ in range(50):
            for leaf in jax.tree.leaves(w):
                if not np.array_equal(local_parts(step(leaf))[0], value(oriel.rank()) + 1):
                    wrong.append("call")

    some = [threading.Thread(target=work) for work in (look, call, look, call)]
    for thread in some:
        thread.start()
    for thread in some:
        thread.join()
    assert not wrong, wrong


main(globals())
