"""Calls over groups of ranks, of programs that differ between ranks: members.py CASE..., in four
processes, of which rank 1 is no member of GROUP."""

import os
import sys

import adjoint
import cases
import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import refused, run_cases
from kernels import several
from oriel import _calls
from oriel._collectives import rooted as _rooted

RANKS = [3, 0, 2]
GROUP = oriel.group(RANKS)  # before there is a world
WIDE = oriel.group([0, 9])
N = len(RANKS)


def equal(got, wanted):
    np.testing.assert_array_equal(np.asarray(got), wanted)


def is_member():
    return oriel.rank() in RANKS


# ---- every operation --------------------------------------------------------------------


def stacked(parts):
    return [np.stack(parts)] * N


def gathered(parts, root):
    return [np.stack(parts) if i == root else part for i, part in enumerate(parts)]


def ragged_arguments():
    drawn = cases.draw_ragged(np.random.default_rng(5), N, 2, 6, (2,), "float64")
    drawn["output"] = np.zeros_like(drawn["output"])
    return drawn


def linear_cases():
    """name: (function, NumPy's of all operands, their shapes)"""
    ring, ragged = [(0, 2), (2, 1)], ragged_arguments()
    mine = [jnp.asarray(ragged[name][GROUP.index]) for name in list(ragged)[1:]]
    alike = {
        "all_reduce": (oriel.all_reduce, lambda p: [sum(p)] * N),
        "mean": (lambda x, **g: 3 * oriel.all_reduce(x, op="mean", **g), lambda p: [sum(p)] * N),
        "all_gather": (oriel.all_gather, stacked),
        "reduce_scatter": (oriel.reduce_scatter, lambda p: list(sum(p))),
        "all_to_all": (
            lambda x, **g: oriel.all_to_all(x, split_axis=0, concat_axis=0, **g),
            lambda p: list(np.swapaxes(np.stack(p), 0, 1)),
        ),
        "broadcast": (lambda x, **g: oriel.broadcast(x, root=1, **g), lambda p: [p[1]] * N),
        "permute": (
            lambda x, **g: oriel.permute(x, None, ring, **g),
            lambda p: cases.permute_by_numpy(np.stack(p), ring),
        ),
        "barrier": (oriel.barrier, lambda p: p),
        "gather": (lambda x, **g: oriel.gather(x, root=2, **g), lambda p: gathered(p, 2)),
        "reduce": (
            lambda x, **g: oriel.reduce(x, root=1, **g),
            lambda p: [p[0], sum(p), p[2]],
        ),
        "scan": (oriel.scan, lambda p: list(np.cumsum(np.stack(p), 0))),
    }
    table = {name: (*pair, [(N, 2)] * N) for name, pair in alike.items()}
    table["scatter"] = (
        lambda x, **g: oriel.scatter(x, root=2, **g),
        lambda p: list(p[2]),
        [(2,), (2,), (N, 2)],
    )
    table["ragged_all_to_all"] = (
        lambda x, **g: oriel.ragged_all_to_all(x, *mine, **g),
        lambda p: cases.ragged_by_numpy(**ragged | {"operand": np.stack(p)}),
        [(6, 2)] * N,
    )
    return table


def every_operation():
    """Values, jvp, grad and vmap, of another dimension on each member; rank 1 does nothing at all."""
    if not is_member():
        return
    rng, me = np.random.default_rng(1), GROUP.index
    for name, (function, oracle, shapes) in linear_cases().items():
        x, t = (adjoint.draw(rng, list(map(np.zeros, shapes))) for _ in range(2))
        y = oracle(x)
        w = adjoint.draw(rng, y)

        def all_of(x, t, w, function=function):
            """One program, around which each rank has something of its own."""
            x = x + 0 * oriel.rank()

            def call(v):
                return function(v, group=GROUP)

            way_back = jax.grad(lambda v: (call(v) * w).sum())
            return (
                call(x),
                jax.jvp(call, (x,), (t,)),
                way_back(x),
                jax.vmap(call, in_axes=me % 2)(jnp.stack([x, t], me % 2)),
            )

        got, (again, tangent), slope, mapped = jax.jit(all_of)(x[me], t[me], w[me])
        try:
            equal(got, y[me])
            equal(again, y[me])
            equal(tangent, oracle(t)[me])
            equal(slope, adjoint.gradient(oracle, x, w, me))
            equal(mapped, np.stack([y[me], oracle(t)[me]]))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def others():
    """What is not linear, and what is no operation; a group in the place of axis_name; a tree."""
    if not is_member():
        return
    parts = [np.array([3.0, r, 7.0]) for r in RANKS]
    mine = jnp.asarray(parts[GROUP.index])
    low, where = jax.jit(lambda v: oriel.all_reduce(v, op="minloc", group=GROUP))(mine)
    equal(low, np.min(parts, 0))
    equal(where, np.argmin(parts, 0))
    high, where = oriel.all_reduce(mine, op="maxloc", group=GROUP)
    equal(high, np.max(parts, 0))
    equal(where, np.argmax(parts, 0))
    equal(oriel.axis_index(group=GROUP), GROUP.index)
    equal(oriel.all_gather(oriel.axis_index(group=GROUP), GROUP), np.arange(N))
    equal(oriel.reduce_scatter(mine, group=GROUP, op="mean"), np.mean(parts, 0)[GROUP.index])
    tree = {"a": mine, "b": [mine[:2], mine.astype(jnp.int32)]}
    total = jax.jit(lambda t: oriel.all_reduce(t, group=GROUP, tag="tree"))(tree)
    equal(total["a"], np.sum(parts, 0))
    equal(total["b"][0], np.sum(parts, 0)[:2])
    equal(total["b"][1], np.sum(parts, 0))
    kernel = several(np.dtype("float32"), "SUM").pass_on
    passed = jax.jit(lambda v: kernel(v, hops=1, group=GROUP)[0])(mine.astype(jnp.float32))
    equal(passed, parts[GROUP.index - 1])


def composed():
    """The rooted operations as GPUs have them."""
    if not is_member():
        return
    rng, me, table = np.random.default_rng(2), GROUP.index, linear_cases()
    for name, more in (
        ("gather", (2,)),
        ("scatter", (2,)),
        ("reduce", ("sum", 1)),
        ("scan", ("sum", False)),
    ):
        _, oracle, shapes = table[name]
        x = adjoint.draw(rng, list(map(np.zeros, shapes)))

        def call(v, name=name, more=more):
            with _calls.making(_calls.Made(f"{name} composed")):
                return getattr(_rooted, f"compose_{name}")(v, GROUP, *more)

        equal(jax.jit(call)(x[me]), oracle(x)[me])


def keywords():
    """tag, effect and ordered; a result that nothing uses."""
    if not is_member():
        return
    x = jnp.arange(3.0) + oriel.rank()
    wanted = 3 * np.arange(3.0) + sum(RANKS)
    for more in ({"tag": "t"}, {"effect": True}, {"ordered": True}, {"tag": "t", "effect": True}):
        equal(jax.jit(lambda v, more=more: oriel.all_reduce(v, group=GROUP, **more))(x), wanted)
    if oriel.rank() == 0:
        jax.jit(lambda v: (oriel.all_reduce(v, group=GROUP, tag="unused"), v)[1])(x)
    else:
        equal(oriel.all_reduce(x, group=GROUP, tag="unused"), wanted)


# ---- groups that cross --------------------------------------------------------------------


def crossing():
    """One tag, one line, one program with calls of several groups, beside calls over the world."""
    rank = oriel.rank()
    lists = [[0, 1], [1, 2], [2, 0], [3, 1, 0], [0, 1, 3], [2], [0, 1, 2, 3]]
    mine = [(k, oriel.group(ranks)) for k, ranks in enumerate(lists) if rank in ranks]

    def value(rank, k, i):
        return 1000.0 * i + 100 * k + 2.0**rank

    def wanted(k, i):
        return sum(value(r, k, i) for r in lists[k])

    def by_line(v, k, group):
        return oriel.all_reduce(v + value(rank, k, 0), group=group)

    def by_tag(v, k, group):
        return oriel.all_reduce(v + value(rank, k, 0), group=group, tag="same")

    @jax.jit
    def step(v):
        lines = [by_line(v, k, group) for k, group in mine]
        return lines, [by_tag(v, k, group) for k, group in mine]

    for i in range(10):
        v = jnp.full(2, 1000.0 * i)
        for call in (by_line, by_tag):
            for k, group in mine:
                equal(call(v, k, group), wanted(k, i))
        for results in step(v):
            for (k, _), got in zip(mine, results, strict=True):
                equal(got, wanted(k, i))
        equal(oriel.all_reduce(v, tag="same"), 4 * np.asarray(v))


def all_ranks():
    """A group of all ranks in their order is the world."""
    whole = oriel.group(range(oriel.size())) if oriel.rank() % 2 else None
    equal(oriel.all_reduce(jnp.ones(2), group=whole, tag="t"), 4)


# ---- random calls ---------------------------------------------------------------------------

ROOTED = {
    "gather": lambda group, root: gathered_by_numpy(group, root),
    "reduce": lambda group, root: [
        cases.by_hand(group, "sum") if i == root else part for i, part in enumerate(group)
    ],
    "scan": lambda group: [cases.by_hand(group[: i + 1], "sum") for i in range(len(group))],
}


def gathered_by_numpy(group, root):
    return [group if i == root else part for i, part in enumerate(group)]


def draw_call(rng):
    """A call, alike on all ranks: (ranks, operation, arguments, operands, results)."""

    def pick(options):
        return options[rng.integers(len(options))]

    ranks = [int(r) for r in rng.permutation(oriel.size())[: rng.integers(1, oriel.size() + 1)]]
    operation = pick([*cases.OPERATIONS, "all_reduce", *ROOTED])
    shape = [pick([1, 2, 3, 300]) for _ in range(pick([1, 2]))]
    if operation in cases.DRAW:
        arguments = cases.DRAW[operation](pick, shape, len(ranks))
    else:
        arguments = {} if operation == "scan" else {"root": pick(range(len(ranks)))}
    dtype = pick(cases.DTYPES)
    if operation in cases.REDUCTIONS:
        arguments["op"] = pick([op for op in cases.STEP if dtype.kind != "c" or op != "prod"])
    elif dtype == bool and operation in ROOTED:
        dtype = np.dtype("int8")  # sums of bool are int32
    parts = cases.draw_values(rng, (len(ranks), *shape), dtype)
    results = (cases.BY_NUMPY | ROOTED)[operation](parts, **arguments)
    return ranks, operation, arguments, parts, results


def same_bits(got, wanted, what):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (what, got.dtype, got.shape)
    if got.dtype.kind == "V" or got.dtype.name in cases.NARROW:
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(got, wanted, err_msg=str(what))


def random_calls():
    """Each rank makes those it is concerned by, in programs of its own making: the nth call of a
    group that has the tag meets the nth."""
    seed, number = 20, 400 if os.environ.get("SOAK") else 40
    rng, own = np.random.default_rng(seed), np.random.default_rng([seed, oriel.rank()])
    drawn = [draw_call(rng) for _ in range(number)]
    mine = [(oriel.group(call[0]), *call[1:]) for call in drawn if oriel.rank() in call[0]]
    while mine:
        some = [mine.pop(0) for _ in range(min(len(mine), own.integers(1, 6)))]

        def function(operands, some=some):
            return [
                getattr(oriel, operation)(x, group=group, tag="random", **needed(operation, more))
                for x, (group, operation, more, _, _) in zip(operands, some, strict=True)
            ]

        results = jax.jit(function)([parts[group.index] for group, _, _, parts, _ in some])
        for got, (group, *what, _, wanted) in zip(results, some, strict=True):
            same_bits(got, wanted[group.index], (group, what))


def needed(operation, arguments):
    """permute's pairs follow an axis_name that has no default."""
    return {"axis_name": None, **arguments} if operation in ("permute", "all_to_all") else arguments


# ---- what is refused -------------------------------------------------------------------------


def outside():
    """A rank that is no member is told so, and the others are not disturbed."""
    x = jnp.ones(2)
    if is_member():
        equal(oriel.all_reduce(x, group=GROUP, tag="outside"), N)
    else:
        for call in (oriel.all_reduce, oriel.gather, oriel.barrier):
            refused(lambda call=call: call(x, group=GROUP), "rank 1", "oriel.group([3, 0, 2])")
        refused(lambda: oriel.axis_index(group=GROUP), "oriel.axis_index", "rank 1")
    refused(lambda: oriel.all_reduce(x, group=WIDE), "rank 9", "this world has 4 ranks")
    refused(lambda: oriel.group([1, 4]), "oriel.group", "rank 4", "4 ranks")


def shrunk():
    """Each process in a world of its own: the last case."""
    oriel.finalize()
    oriel.init(process_id=0, num_processes=1, distributed=False)
    refused(lambda: oriel.all_reduce(jnp.ones(2), group=GROUP), "rank 3", "this world has 1 ranks")
    equal(oriel.all_reduce(jnp.ones(2), group=oriel.group([0])), 1)


def main():
    jax.config.update("jax_enable_x64", True)
    oriel.init(distributed=False)
    run_cases(globals(), sys.argv[1:])
    oriel.finalize()


main()
