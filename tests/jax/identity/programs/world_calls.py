"""World calls (axis_name=None) of programs that differ altogether: world_calls.py CASE..."""

import time

import in_turn
import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import make_mesh, report, sharded, spread
from jax import lax
from jax.sharding import PartitionSpec as P

N_WORDS = 4


def mine(scale=1.0):
    return jnp.arange(N_WORDS, dtype=jnp.float32) * scale + oriel.rank()


def total_of(scale=1.0):
    n = oriel.size()
    return np.arange(N_WORDS, dtype=np.float32) * scale * n + sum(range(n))


def equal(got, wanted):
    np.testing.assert_array_equal(got, wanted)


# ---- meeting --------------------------------------------------------------------------


def by_tag():
    """Each rank calls from a place, a function and a nesting of its own."""
    rank = oriel.rank()
    inner = jax.jit(lambda v: oriel.all_reduce(v, tag="sum"))
    if rank == 0:
        step = jax.jit(lambda v: oriel.all_reduce(v, tag="sum"))
    elif rank == 1:
        step = jax.jit(lambda v: lax.cond(v[0] >= 0, inner, lambda w: w, v) * 1)
    else:
        step = jax.jit(lambda v: lax.scan(lambda c, _: (inner(c), None), v, length=1)[0])
    for i in range(5):
        equal(step(mine(i)), total_of(i))


def in_other_orders():
    """Independent calls with tags, written in opposite orders."""

    def function(v):
        calls = [
            lambda: oriel.all_reduce(v, tag="a"),
            lambda: oriel.broadcast(v, tag="b", root=1),
            lambda: oriel.all_reduce(v, op="max", tag="c"),
        ]
        numbers = list(range(3))[:: -1 if oriel.rank() % 2 else 1]
        results = {i: calls[i]() for i in numbers}
        return [results[i] for i in range(3)]

    step, n = jax.jit(function), oriel.size()
    for i in range(5):
        got = step(mine(i))
        line = np.arange(N_WORDS, dtype=np.float32) * i
        for one, wanted in zip(got, (total_of(i), line + 1, line + n - 1), strict=True):
            equal(one, wanted)


def every_operation():
    """All take tag, effect and ordered."""
    n, rank = oriel.size(), oriel.rank()
    ones = jnp.ones(n, jnp.int32)
    v = jnp.arange(n, dtype=jnp.float32) + 10 * rank
    table = np.arange(n) + 10.0 * np.arange(n)[:, None]
    ring = [(i, (i + 1) % n) for i in range(n)]
    arrays = v, 0 * v, jnp.arange(n), ones, rank * ones, ones
    for keywords in (
        {"tag": "t"},
        {"effect": True},
        {"ordered": True},
        {"tag": "u", "effect": True},
    ):
        cases = [
            (lambda v: oriel.all_reduce(v, **keywords), table.sum(0)),
            (lambda v: oriel.all_gather(v, **keywords), table),
            (lambda v: oriel.reduce_scatter(v, **keywords), table[:, rank].sum()),
            (lambda v: oriel.all_to_all(v, None, 0, 0, **keywords), table[:, rank]),
            (lambda v: oriel.broadcast(v, root=n - 1, **keywords), table[n - 1]),
            (lambda v: oriel.permute(v, None, ring, **keywords), table[rank - 1]),
            (lambda v: oriel.barrier(v, **keywords), table[rank]),
            (
                lambda *a: oriel.ragged_all_to_all(*a, axis_name=None, **keywords),
                table[:, rank],
            ),
        ]
        for i, (function, wanted) in enumerate(cases):
            equal(jax.jit(function)(*(arrays if i == 7 else (v,))), wanted)


# ---- a tag twice ------------------------------------------------------------------------


def tag_twice():
    """The later call is ordered after the earlier: they meet in the program's order, though
    nothing else orders them, and each rank's operands become ready in another one."""

    def slow(v, rounds):
        return lax.fori_loop(0, rounds, lambda _, w: jnp.sin(w), 0 * v) + v

    @jax.jit
    def step(v):
        late = 20_000 * (oriel.rank() % 2)
        first = oriel.all_reduce(slow(v, late), tag="same")
        second = oriel.all_reduce(slow(v * 10, 20_000 - late), tag="same")
        return first, second

    for i in range(20):
        first, second = step(mine(i))
        equal(first, total_of(i))
        equal(second, 10 * total_of(i))


def tag_twice_in_other_blocks():
    """One inside of a branch, the other outside: no order can be made."""

    def inside(v):
        return lax.cond(v[0] > 0, lambda w: oriel.all_reduce(w, tag="same"), lambda w: w, v)

    def function(v):
        return oriel.all_reduce(v, tag="same") + inside(v)

    try:
        jax.jit(function).lower(mine())
        report(case="tag_twice_in_other_blocks", text=None)
    except ValueError as error:
        report(case="tag_twice_in_other_blocks", text=str(error))
    equal(jax.jit(inside)(mine(1) + 1), total_of(1) + oriel.size())


# ---- results that nothing uses -----------------------------------------------------------


def count_calls(compiled):
    return compiled.as_text().count('custom_call_target="oriel_')


def unused_on_top():
    """Made for nothing, as MPI would: the others wait for it."""

    def function(v):
        if oriel.rank() == 0:
            oriel.all_reduce(v, tag="t")
            return v
        return oriel.all_reduce(v, tag="t")

    for i in range(3):
        equal(jax.jit(function)(mine(i)), mine(i) if oriel.rank() == 0 else total_of(i))
    step = jax.jit(lambda v: (oriel.broadcast(v), oriel.barrier(v), v)[2])
    assert count_calls(step.lower(mine()).compile()) == 2
    equal(step(mine()), mine())


def unused_elsewhere():
    """In an inner jit and in a scan with effect=True; the others see that they were made, each
    time round."""

    def make(effect):
        @jax.jit
        def inner(v):
            oriel.all_reduce(v, tag="inner", effect=effect)
            return v

        def body(v, _):
            oriel.all_reduce(v, tag="body", effect=effect)
            return v, None

        return jax.jit(lambda v: inner(v)), jax.jit(lambda v: lax.scan(body, v, length=3)[0])

    def look(tag):
        equal(jax.jit(lambda v: oriel.all_reduce(v, tag=tag))(mine(2)), total_of(2))

    for step, tag, times in zip(make(True), ("inner", "body"), (1, 3), strict=True):
        assert count_calls(step.lower(mine()).compile()) == 1
        if oriel.rank() == 0:
            equal(step(mine(2)), mine(2))
        else:
            for _ in range(times):
                look(tag)


def ordered():
    """All calls of a program in one order, as MPI has them: without data that would say so, and
    with operands that are ready in other orders."""

    def function(v):
        w = lax.fori_loop(0, 20_000, lambda _, w: jnp.sin(w), 0 * v) + v
        a, b = (v, w) if oriel.rank() % 2 else (w, v)
        first = oriel.all_reduce(a, ordered=True, tag="same")
        second = oriel.all_reduce(2 * b, ordered=True, tag="same")
        oriel.barrier(v, ordered=True)
        third = oriel.broadcast(v, ordered=True)
        return first, second, third

    step = jax.jit(function)
    for i in range(10):
        first, second, third = step(mine(i))
        equal(first, total_of(i))
        equal(second, 2 * total_of(i))
        equal(third, np.arange(N_WORDS) * i)
    jax.effects_barrier()


# ---- derivatives, numbers ------------------------------------------------------------------


def transposes():
    """The way back of a call has a tag of its own: it never meets the way there, also where
    ranks differentiate another number of times."""

    def loss(v):
        return (oriel.all_reduce(v, tag="sum") * v).sum()

    def forward(v):
        return oriel.all_reduce(v, tag="sum")

    gradient = jax.jit(jax.grad(loss))
    for i in range(3):
        equal(gradient(mine(i)), 2 * total_of(i))
        equal(jax.jit(forward)(mine(i)), total_of(i))


def transposes_alone():
    """One rank asks for the derivative, the others for the sum: the way back has nobody to meet,
    and the sentence shows whom it waits for. The call that all made is right."""

    def loss(v):
        return (oriel.all_reduce(v, tag="sum") * v).sum()

    try:
        if oriel.rank() == 0:
            jax.block_until_ready(jax.jit(jax.grad(loss))(mine()))
        else:
            equal(jax.jit(lambda v: oriel.all_reduce(v, tag="sum"))(mine()), total_of())
            jax.block_until_ready(jax.jit(lambda v: oriel.all_reduce(v, tag="next"))(mine()))
        report(case="transposes_alone", text=None)
    except Exception as error:
        report(case="transposes_alone", text=str(error))


def rank_and_index():
    """rank is a Python number, axis_index a traced one: what uses it is one program."""
    assert type(oriel.rank()) is int
    step = jax.jit(lambda v: v + oriel.axis_index())
    equal(step(jnp.zeros(3)), oriel.rank())
    text = step.lower(jnp.zeros(3)).as_text()
    report(case="rank_and_index", text=text)
    table = jax.jit(lambda: oriel.all_gather(oriel.axis_index(), tag="who"))()
    equal(table, np.arange(oriel.size()))


def beside_meshes():
    """World calls and calls over a mesh, in any mixture."""
    mesh = make_mesh((oriel.size(),), ("x",))
    table = np.arange(oriel.size() * 3.0, dtype=np.float32).reshape(-1, 3)
    over = sharded(mesh, lambda v: oriel.all_reduce(v, "x"))
    for i in range(4):
        if oriel.rank() % 2:
            alone = jax.jit(lambda v, i=i: oriel.all_reduce(v * 1, tag="world"))
        else:
            alone = jax.jit(lambda v: oriel.all_reduce(v, tag="world"))
        equal(alone(mine(i)), total_of(i))
        got = over(spread(mesh, table, P("x")))
        equal(got.addressable_shards[0].data[0], table.sum(0))


def differ():
    """What meets by tag is compared."""
    begun = time.monotonic()
    odd = oriel.rank() == 1
    function = jax.jit(lambda v: oriel.all_reduce(v, op="max" if odd else "sum", tag="t"))
    try:
        jax.block_until_ready(function(mine()))
        text = None
    except Exception as error:
        text = str(error)
    report(case="differ", begun=begun, told=time.monotonic(), text=text)


in_turn.main(globals())
