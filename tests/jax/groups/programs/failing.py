"""Calls over groups that fail, of three processes: failing.py CASE..., each in a world of its own.
Rank 1 is in none of them."""

import os
import signal
import sys

import jax
import jax.numpy as jnp
import oriel
from common import report


def differ(group):
    """The members ask for different things."""
    op = "max" if oriel.rank() == 0 else "sum"
    return jax.jit(lambda v: oriel.all_reduce(v, op=op, group=group, tag="t"))(jnp.ones(4))


def elsewhere(group):
    """The members make calls of different groups, of the same ranks."""
    other = oriel.group(group.ranks[::-1]) if oriel.rank() == 0 else group
    return oriel.all_reduce(jnp.ones(4), group=other, tag="t")


def killed(group):
    """One dies in the midst."""
    oriel.all_reduce(jnp.ones(4), group=group, tag="t").block_until_ready()
    if oriel.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return oriel.all_reduce(jnp.ones(4), group=group, tag="t")


def main():
    group = oriel.group([2, 0])
    for name in sys.argv[1:]:
        oriel.init(distributed=False, timeout=3.0 if name == "elsewhere" else None)
        if oriel.rank() in group.ranks:
            try:
                jax.block_until_ready(globals()[name](group))
                report(case=name, text=None)
            except Exception as error:
                report(case=name, text=str(error))
        try:
            oriel.finalize()
        except oriel.OrielError:
            pass


main()
