"""Ordinary programs whose processes are not alike in all: rows.py CASE...

Each case is a program of its own, for any number of processes."""

import functools
import time

import in_turn
import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import local_parts, make_mesh, report, sharded, spread
from jax import lax
from jax.sharding import PartitionSpec as P
from kernels import several

WIDTH = 8


def operand(width=WIDTH):
    """(mesh, the global array, the sum over ranks)"""
    n = oriel.size()
    table = np.arange(n * width, dtype=np.float32).reshape(n, width)
    mesh = make_mesh((n,), ("x",))
    return mesh, spread(mesh, table, P("x")), table.sum(0)


def equal(array, wanted):
    for part in local_parts(array):
        np.testing.assert_array_equal(part[0] if part.ndim > np.ndim(wanted) else part, wanted)


# ---- over mesh axes -----------------------------------------------------------------


def rank_is_a_constant():
    mesh, x, total = operand()
    step = sharded(mesh, lambda v: oriel.all_reduce(v + oriel.rank(), "x"))
    added = sum(range(oriel.size()))
    for _ in range(3):
        equal(step(x), total + added)


def one_rank_moves_what_is_mapped():
    """What a rank alone adds has JAX put the mapped dimension in front there."""
    mesh, x, total = operand()

    def one(column):
        return oriel.all_reduce(
            column + jnp.zeros(1, np.float32) if oriel.rank() == 0 else column, "x"
        )

    step = sharded(mesh, jax.vmap(one, in_axes=-1, out_axes=-1))
    equal(step(x), total)


def one_rank_prints():
    mesh, x, total = operand()

    def function(v):
        if oriel.rank() == 0:
            jax.debug.print("rank 0 has {}", v[0, 0])
        return oriel.all_reduce(v, "x")

    step = sharded(mesh, function)
    for _ in range(3):
        equal(step(x), total)
    jax.effects_barrier()


def one_rank_branches():
    """Code that is on one rank alone, around the call and after it."""
    mesh, x, total = operand()

    def function(v):
        if oriel.rank() == 0:
            v = jnp.flip(lax.fori_loop(0, 3, lambda _, w: w + 1, jnp.flip(v))) - 3
        total = oriel.all_reduce(v, "x")
        if oriel.rank() == 1:
            total = jax.jit(jnp.sin)(0 * total) + total
        return oriel.all_reduce(total, "x", "max")

    step = sharded(mesh, function)
    for _ in range(3):
        equal(step(x), total)


def data_of_the_rank():
    mesh, x, total = operand()
    mine = np.full(WIDTH, 10.0 ** oriel.rank(), np.float32)
    step = sharded(mesh, lambda v: oriel.all_reduce(v * 0 + mine, "x"))
    equal(step(x), np.full(WIDTH, sum(10.0**r for r in range(oriel.size()))))


# ---- world calls --------------------------------------------------------------------


def world_constants():
    """MPI style: the rank and its data are constants, and the code differs."""
    rank, n = oriel.rank(), oriel.size()
    mine = np.arange(WIDTH, dtype=np.float32) * (rank + 1)

    @jax.jit
    def step(scale):
        v = mine * scale
        if rank == 0:
            v = jnp.sort(v)
        total = meet(v)
        return total - rank if rank % 2 else total * 2

    wanted = np.arange(WIDTH) * sum(range(1, n + 1)) * 3
    for _ in range(3):
        np.testing.assert_array_equal(step(3.0), wanted - rank if rank % 2 else wanted * 2)


def meet(v):
    return oriel.all_reduce(v)


# ---- shapes, order of compilation -----------------------------------------------------


def ahead_and_lazy():
    """Process 0 compiles two shapes ahead, the others compile when they come to it."""
    mesh, a, of_a = operand(8)
    b, of_b = operand(32)[1:]
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"))
    run = {8: step, 32: step}
    if oriel.process_id() == 0:
        run = {8: step.lower(a).compile(), 32: step.lower(b).compile()}
    for _ in range(3):
        equal(run[8](a), of_a)
        equal(run[32](b), of_b)


def shapes_in_other_orders():
    """Each process compiles three shapes of two functions ahead, in an order of its own."""
    mesh = operand()[0]
    steps = [
        sharded(mesh, lambda v: oriel.all_reduce(v, "x")),
        sharded(mesh, lambda v: oriel.all_reduce(oriel.broadcast(v, "x", root=1), "x", "max")),
    ]
    operands = {width: operand(width)[1:] for width in (4, 8, 16)}
    todo = [(i, width) for i in range(2) for width in operands]
    ahead = {}
    for i, width in np.roll(todo, oriel.process_id() * 2, 0)[:: -1 if oriel.process_id() else 1]:
        ahead[i, width] = steps[i].lower(operands[width][0]).compile()
    for i, width in todo * 2:
        x, total = operands[width]
        n = oriel.size()
        wanted = total if i == 0 else np.arange(width, 2 * width)
        assert n > 1
        equal(ahead[i, width](x), wanted)


def compiled_again():
    """One process forgets what it compiled, in the midst of it."""
    mesh, x, total = operand()
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"))
    for i in range(6):
        if i == 3 and oriel.process_id() == 1:
            jax.clear_caches()
        equal(step(x), total)


def hoisted():
    """The operand is invariant in the loop of rank 0 alone, and XLA moves what it can."""
    mesh, x, total = operand()

    def function(v):
        def step(carry, _):
            w = v if oriel.rank() == 0 else v + jnp.sin(0 * carry)
            return carry + oriel.all_reduce(w, "x"), None

        zeros = 0 * oriel.all_reduce(v, "x")
        return lax.scan(step, zeros, length=4)[0]

    for _ in range(2):
        equal(sharded(mesh, function)(x), 4 * total)


def independent(call):
    """Each rank has code of its own before another one of two independent calls. XLA would make
    them in another order on each rank, and since it takes the steps of a small program one by
    one, they would wait for each other."""
    mesh, x, total = operand(4)
    rank = oriel.rank()

    def sort(v):
        return jnp.sort(v, axis=1)

    def add(v):
        mine = np.arange(v.shape[1], dtype=np.float32)
        return v + mine - mine

    def make(own):
        def function(v):
            a, b = (own(v), v) if rank == 0 else (v, own(v))
            return call(a) + oriel.all_reduce(b, "x", op="max")

        return sharded(mesh, function, check_vma=False)

    highest = np.arange(4) + 4 * (oriel.size() - 1)
    for own in (sort, add):
        equal(make(own)(x), total + highest)


def independent_calls():
    independent(lambda v: oriel.all_reduce(v, "x"))


def independent_calls_in_a_jit():
    independent(jax.jit(lambda v: oriel.all_reduce(v, "x")))


def independent_calls_in_a_loop():
    def loop(v):
        def step(carry, _):
            return 0 * carry + oriel.all_reduce(v, "x"), None

        return lax.scan(step, v, length=2)[0]

    independent(loop)


def independent_regions():
    """Each of the two calls is in a shard_map of its own, of one jitted function."""
    mesh, x, total = operand(4)
    rank, highest = oriel.rank(), np.arange(4) + 4 * (oriel.size() - 1)

    def region(first, op):
        def call(v):
            v = jnp.sort(v, axis=1) if first == (rank == 0) else v
            return oriel.all_reduce(v, "x", op=op) + 0 * v

        return jax.shard_map(call, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)

    def looped(f):
        return lambda v, k: lax.fori_loop(0, k, lambda _, w: 0 * w + f(v), v)

    def chosen(f):
        return lambda v, k: lax.cond(k > 0, f, lambda w: w, v)

    wrappers = {
        "plain": lambda f: lambda v, k: f(v),
        "inner": lambda f: lambda v, k: jax.jit(f)(v),
        "loop": looped,
        "branch": chosen,
    }
    for name, wrap in wrappers.items():
        parts = [wrap(region(True, "sum")), wrappers["inner"](region(False, "max"))]
        for one, other in (parts, parts[::-1]):

            def function(v, k, one=one, other=other):
                return one(v, k) + other(v, k)

            function.__name__ = name
            equal(jax.jit(function)(x, 2), total + highest)


def other_lines():
    """What is jitted is oriel's own function, or made of it, and each rank comes to it from
    another line: the place is that of the function."""
    mesh, x, total = operand()
    part = functools.partial(oriel.all_reduce, axis_name="x")
    over = [
        sharded(mesh, part),
        sharded(mesh, lambda v: jax.checkpoint(part)(v)),
        sharded(mesh, lambda v: lax.map(part, v)),
    ]
    world = [jax.jit(oriel.all_reduce), jax.jit(functools.partial(oriel.all_reduce, op="sum"))]
    mine = np.full(WIDTH, oriel.rank() + 1.0, np.float32)
    for step in over:
        if oriel.rank() == 0:
            result = step(x)
        else:
            result = step(x)
        equal(result, total)
    for step in world:
        if oriel.rank() == 0:
            result = step(mine)
        else:
            result = step(mine)
        np.testing.assert_array_equal(result, sum(range(1, oriel.size() + 1)))


def kernel_ahead_and_lazy():
    """A person's own kernel."""
    mesh, a, of_a = operand(8)
    b, of_b = operand(32)[1:]
    add = several(np.dtype("float32"), "SUM").reduce
    step = sharded(mesh, lambda v: add(v + oriel.rank(), axis_name="x"), P("x"), P("x"))
    added = sum(range(oriel.size()))
    run = {8: step, 32: step}
    if oriel.process_id() == 0:
        run = {32: step.lower(b).compile(), 8: step.lower(a).compile()}
    for _ in range(2):
        equal(run[8](a), of_a + added)
        equal(run[32](b), of_b + added)


# ---- copies ---------------------------------------------------------------------------


def nested_twice():
    """Twice × twice: four calls from one line, in modules that each process lowers when it
    likes."""
    mesh, x, total = operand()
    inner = jax.jit(lambda v: oriel.all_gather(v, "x").sum(0) + oriel.rank() - oriel.rank())
    outer = jax.jit(lambda v: inner(v) + inner(v * 10))
    step = sharded(mesh, lambda v: outer(v) + outer(v * 100), P("x"), P("x"))
    if oriel.process_id() == 0:
        step = step.lower(x).compile()
    for _ in range(3):
        equal(step(x), total * 1111)


# ---- an exception between ---------------------------------------------------------------


def wait_for_failure():
    """Until the world has failed."""
    while True:
        try:
            oriel.check()
        except oriel.OrielError:
            return
        time.sleep(0.01)


def raised_before_a_call():
    """Rank 1 raises before its call and catches it, the others' deadline passes; all go to a new
    world, and call the same function there."""
    oriel.finalize()
    oriel.init(timeout=2)
    mesh, x, total = operand()
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"))
    equal(step(x), total)
    if oriel.rank() == 1:
        try:
            raise RuntimeError("before the call")
        except RuntimeError:
            wait_for_failure()
    else:
        try:
            jax.block_until_ready(step(x))
        except Exception as error:
            report(case="raised_before_a_call", heard=str(error))
    for _ in range(3):
        oriel.finalize()
        oriel.init()
        for _ in range(2):
            equal(step(x), total)


in_turn.main(globals())
