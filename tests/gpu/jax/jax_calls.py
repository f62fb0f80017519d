"""Which calls belong together: jax_calls.py differ|ahead|extra, for programs that differ between
ranks, and jax_calls.py COUNT, for worlds that fail and are renewed. What the ranks do is drawn
alike on all."""

import random
import sys

import jax
import numpy as np
import oriel
from jax_common import failure_of, own, row, sharded, spread, start

RUNS = 4  # more than XLA needs to capture


def values(mesh, run=0):
    n = oriel.size()
    return np.arange(n * 256, dtype=np.float32).reshape(n, -1) + run


def check(mesh, step, run, factor=1.0):
    x = values(mesh, run)
    np.testing.assert_array_equal(own(step(spread(mesh, x)))[0], x.sum(0) * factor)


def programs_that_differ(mesh, ahead):
    """In a rank's constants; `ahead`: and in when they are compiled."""
    rank = oriel.rank()

    def step(v):
        return oriel.all_reduce(v + rank, "x") - sum(range(oriel.size()))

    function = sharded(mesh, step, check_vma=False)
    if ahead and rank == 0:
        wide = np.zeros((oriel.size(), 512), np.float32)
        function.lower(spread(mesh, wide)).compile()
    for run in range(RUNS):
        check(mesh, function, run)
    oriel.finalize()
    row("constants of a rank differ" + ahead * ", and orders of compiling")


def a_call_too_many(mesh):
    def helper(v):
        return oriel.all_reduce(v, "x")

    def step(v):
        if oriel.rank() == 0:
            v = v + 0 * helper(v)
        return helper(v)

    x = spread(mesh, values(mesh))
    function = sharded(mesh, step, check_vma=False)
    said = failure_of(lambda: (jax.block_until_ready(function(x)), oriel.check()))
    assert "but their programs differ" in said and "__main__:" in said, said
    failure_of(oriel.check)
    oriel.finalize()
    row("a call too many is told by its place")


def fail_somehow(mesh, step, other, kind, victim):
    """Returns once this rank has failed, or has done what makes the others fail."""
    x = spread(mesh, values(mesh))
    if oriel.rank() == victim and kind == "skips":
        return
    if oriel.rank() == victim and kind == "finalizes":
        finalize()
        return
    if oriel.rank() == victim and kind == "differs":
        step = other
    try:
        jax.block_until_ready(step(x))
        oriel.check()
    except Exception as error:
        print(f"{kind}: {error}", flush=True)


def finalize():
    try:
        oriel.finalize()
    except oriel.OrielError as error:
        print(f"finalize: {error}", flush=True)


def renew(count):
    choose = random.Random(5)
    mesh = start(timeout=1.5)
    step = sharded(mesh, lambda v: oriel.all_reduce(v, "x"), check_vma=False)
    other = sharded(mesh, lambda v: oriel.all_gather(v, "x")[0], check_vma=False)
    jax.block_until_ready(other(spread(mesh, values(mesh))))
    for round_ in range(count):
        compiled.clear()
        for run in range(RUNS):
            check(mesh, step, run)
        assert round_ == 0 or not compiled, (round_, compiled)
        kind = choose.choice(("skips", "finalizes", "differs", "nothing"))
        if kind != "nothing":
            fail_somehow(mesh, step, other, kind, choose.randrange(oriel.size()))
        finalize()
        mesh = start(timeout=1.5)
    check(mesh, step, 0)
    oriel.finalize()
    row(f"{count} failures and renewals")


compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
)
what = sys.argv[1]
if what in ("differ", "ahead"):
    programs_that_differ(start(timeout=20), what == "ahead")
elif what == "extra":
    a_call_too_many(start(timeout=20))
else:
    renew(int(what))
