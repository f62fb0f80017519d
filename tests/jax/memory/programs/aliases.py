"""Windows that XLA or somebody else has a second time, and those of a program under two names:
aliases.py CASE..., each in the world of one job."""

import copy
import gc
import pickle
import threading

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import local_parts, make_mesh, refused
from jax import lax
from jax.sharding import PartitionSpec as P
from kernels import several
from over_mesh import (
    SHAPE,
    each,
    equal,
    filled,
    main,
    meet,
    mesh,
    over,
    plain,
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


def misused():
    """Whoever takes a window for an array is told what to do."""
    w, v, x = filled(), filled(), plain()
    meet()
    for call in (lambda: np.asarray(w), lambda: jnp.asarray(w), lambda: v.write(w)):
        refused(call, "is no array", kind=TypeError)
    for call in (lambda: copy.copy(w), lambda: copy.deepcopy([w]), lambda: pickle.dumps(w)):
        refused(call, "pickled", kind=TypeError)
    ordered = over(lambda x, w, v: oriel.all_reduce(x, "x", into=w, after=v), (P("x"),) * 3)
    refused(lambda: ordered(x, w, v), "after must be a ticket", kind=TypeError)
    exported = jax.export.export(over(doubled, P("x")))
    refused(lambda: exported(w), "cannot be exported", kind=NotImplementedError)
    equal(jax.jit(lambda u: u + w.peer(0) + w.read(rank=0))(ONES), ONES + 2 * value(0))
    state = {"windows": [w, v], "step": 3}
    equal(jax.tree.map(lambda x: x, state)["windows"][0].shape, (SHAPE[0] * oriel.size(), SHAPE[1]))


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


# ---- in programs ------------------------------------------------------------------------------


def copied():
    """What XLA has copied may be older than what the reader comes after."""
    a, b = filled(), filled()

    def step(a, b):
        def body(_, carry):
            a, b, ticket = carry
            y = oriel.all_reduce(a, "x", after=ticket)
            return b, a, ticket + 0 * y[:1, 0].astype(np.int32)

        return lax.fori_loop(0, 3, body, (a, b, oriel.store(ONES, a)))[2]

    refused(lambda: jax.block_until_ready(over(step, BOTH)(a, b)), "in no window", kind=Exception)

    def later(w, ticket):
        return oriel.all_reduce(w, "x", after=ticket)

    donating = jax.shard_map(later, mesh=mesh(), in_specs=BOTH, out_specs=P())
    donating = jax.jit(donating, donate_argnums=0)
    refused(lambda: jax.block_until_ready(donating(b, plain())), "in no window", kind=Exception)


def two_names():
    """A window that a program has twice is one."""
    w, out = filled(), filled()
    inner = jax.jit(lambda v, w: (oriel.load(v), oriel.store(ONES, w)))
    refused(lambda: over(lambda w: inner(w, w), P("x"), BOTH)(w), UNORDERED)

    def handed_on(w):
        same = jax.jit(lambda w, x: (w, x + 1))(w, ONES)[0]
        return oriel.load(w), oriel.store(ONES, same)

    refused(lambda: over(handed_on, P("x"), BOTH)(w), UNORDERED)

    def regions(w):
        first = jax.shard_map(
            lambda w: oriel.load(w), mesh=mesh(), in_specs=P("x"), out_specs=P("x")
        )
        second = jax.shard_map(doubled, mesh=mesh(), in_specs=P("x"), out_specs=P("x"))
        return first(w), second(w)

    refused(lambda: jax.jit(regions)(w), UNORDERED)
    returned = over(lambda w: (w, oriel.store(ONES, w)), P("x"), BOTH)
    refused(lambda: returned(w), "returns a window that it writes")
    each(w.array, values())

    def unused(w, out):
        inner = jax.jit(lambda w, out, x: oriel.store(x, out))
        return doubled(w), inner(w, out, ONES)

    jax.block_until_ready(over(unused, BOTH, BOTH)(w, out))
    each(w.array, [2 * v for v in values()])
    each(out.array, [ONES] * oriel.size())

    def in_turns(w):
        def body(_, ticket):
            return oriel.store(oriel.load(w, after=ticket) + 1, w)

        ticket = lax.fori_loop(0, 5, body, doubled(w))
        return oriel.load(w, after=ticket)

    each(over(in_turns, P("x"))(w), [4 * v + 5 for v in values()])


def kernels_in_place():
    """A kernel that reads what others have written already."""
    shape = (64, 33)
    kernel = several(np.dtype("float32"), "SUM").reduce_all
    w, wanted = filled(shape), sum(values(shape))
    step = over(lambda w: kernel(w, axis_name="x", into=w), P("x"))
    jax.block_until_ready(step(w))
    each(w.array, [wanted] * oriel.size())
    pair = over(lambda v, w: kernel(v, axis_name="x", into=w), BOTH)
    refused(lambda: jax.block_until_ready(pair(w, w)), "to the program twice", kind=Exception)
    v = filled(shape)
    jax.block_until_ready(pair(v, w))
    each(w.array, [wanted] * oriel.size())
    each(v.array, values(shape))
    reduce = over(lambda v, w: oriel.all_reduce(v, "x", into=w), BOTH)
    jax.block_until_ready(reduce(v, v))
    each(v.array, [wanted] * oriel.size())


def inner_functions():
    """A function that has nothing but windows is put after a call without a copy of them."""
    w, out = filled(), filled()

    def step(x, w, out):
        y = oriel.all_reduce(x, "x")
        inner = jax.jit(lambda w, out: oriel.all_reduce(w, "x", into=out))
        return y, inner(w, out)

    step = over(step, (P("x"),) * 3, BOTH)
    jax.block_until_ready(step(plain(), w, out))
    each(out.array, [sum(values())] * oriel.size())
    text = step.lower(plain(), w, out).compile().as_text()
    assert "4]{1,0} copy(" not in text, text


def read_again():
    """What XLA would compute twice of an argument, before it is written and after, it has once."""
    kernel = several(np.dtype("float32"), "SUM").reduce
    kernel.defvjp(lambda operands, results, cotangents, **_: (operands[0] * 3,))
    w = filled()

    def step(w):
        grad = jax.grad(lambda w: kernel(w, axis_name="x").sum())(w)
        (grad,) = jax.tree.leaves(grad)
        ticket = oriel.store(grad, w)
        return grad + 0 * oriel.load(w, after=ticket)

    for i in range(1, 4):
        each(over(step, P("x"))(w), [3**i * v for v in values()])
        each(w.array, [3**i * v for v in values()])


main(globals())
