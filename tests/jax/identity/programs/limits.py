"""What processes must do alike, and what is said where they do not: limits.py CASE"""

import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import local_parts, make_mesh, report, sharded, spread
from jax.experimental import serialize_executable
from jax.sharding import PartitionSpec as P

WIDTH = 4


def operand():
    n = oriel.size()
    table = np.arange(n * WIDTH, dtype=np.float32).reshape(n, WIDTH)
    mesh = make_mesh((n,), ("x",))
    return mesh, spread(mesh, table, P("x")), table.sum(0)


def tell(function):
    """What comes of it, and when."""
    begun, text = time.monotonic(), None
    try:
        function()
    except Exception as error:
        text = str(error)
    report(begun=begun, told=time.monotonic(), text=text)


def made_by_a_factory():
    """Two functions of one name whose calls stand on one line; each rank calls another one."""

    def make(op):
        def step(v):
            return oriel.all_reduce(v, "x", op)

        return step

    mesh, x, _ = operand()
    op = "max" if oriel.rank() == 1 else "sum"
    tell(lambda: jax.block_until_ready(sharded(mesh, make(op))(x)))


def one_step_less():
    """Rank 1 leaves out a step of one function, and goes on with another one."""
    mesh, x, total = operand()
    first = sharded(mesh, lambda v: oriel.all_reduce(v, "x"))

    def second(v):
        return oriel.all_reduce(v, "x", "max")

    for _ in range(2 if oriel.rank() == 1 else 3):
        result = first(x)
        np.testing.assert_array_equal(local_parts(result)[0][0], total)
        if oriel.rank() != 1:
            report(step=True)
    tell(lambda: jax.block_until_ready(sharded(mesh, second)(x)))


def another_way_round():
    """Rank 1 goes round a loop once less than the others, and executes the program again."""
    mesh, x, _ = operand()
    times = 2 if oriel.rank() == 1 else 3

    def step(v):
        return jax.lax.fori_loop(0, times, lambda i, w: w + oriel.all_reduce(w, "x"), v)

    function = sharded(mesh, step, P("x"), P("x"))

    def execute():
        for _ in range(4):
            jax.block_until_ready(function(x))
            report(step=True)
        oriel.check()

    tell(execute)


def several_threads():
    """One function launched by several threads at once: other ranks cannot know in which order,
    so no result may be wrong unless one of them raises."""
    mesh, _, _ = operand()
    n = oriel.size()
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"))
    table = np.ones((n, WIDTH), np.float32)
    jax.block_until_ready(step(spread(mesh, table, P("x"))))
    texts, launches = [], 200

    def launch():
        try:
            for _ in range(launches):
                result = step(spread(mesh, table, P("x")))
                np.testing.assert_array_equal(local_parts(result)[0][0], n)
        except Exception as error:
            texts.append(str(error))

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report(texts=texts)


def deserialised():
    """One rank runs what it had compiled before, serialised and loaded again."""
    mesh, x, total = operand()
    step = sharded(mesh, lambda v: oriel.all_reduce(v + oriel.rank() - oriel.rank(), "x"))
    compiled = step.lower(x).compile()
    if oriel.rank() == 0:
        compiled = serialize_executable.deserialize_and_load(
            *serialize_executable.serialize(compiled)
        )
    for _ in range(3):
        np.testing.assert_array_equal(local_parts(compiled(x))[0][0], total)


def another_function():
    """Each rank calls a function of its own."""
    mesh, x, _ = operand()

    def mine(v):
        return oriel.all_reduce(v, "x")

    def theirs(v):
        return oriel.all_reduce(v, "x")

    tell(lambda: jax.block_until_ready(sharded(mesh, theirs if oriel.rank() else mine)(x)))


def no_call():
    """Rank 1's function has none of the calls, and rank 1 goes on to the end."""
    mesh, x, _ = operand()
    odd = oriel.rank() == 1
    step = sharded(mesh, lambda v: v if odd else oriel.all_reduce(v, "x"), P("x"), P("x"))
    tell(lambda: jax.block_until_ready(step(x)))


def tag_on_a_mesh():
    mesh, x, _ = operand()
    for keywords in ({"tag": "t"}, {"effect": True}, {"ordered": True}):
        try:
            sharded(mesh, lambda v, k=keywords: oriel.all_reduce(v, "x", **k)).lower(x)
            report(text=None)
        except ValueError as error:
            report(text=str(error))


def tag_is_no_text():
    for tag in (5, "", b"t"):
        try:
            jax.jit(lambda v, t=tag: oriel.all_reduce(v, tag=t)).lower(jnp.ones(3))
            report(text=None)
        except TypeError as error:
            report(text=str(error))


def main():
    oriel.init()
    globals()[sys.argv[1]]()
    report(ok=True)


main()
