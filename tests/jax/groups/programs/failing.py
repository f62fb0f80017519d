"""Calls over groups that fail, of three processes: failing.py CASE. Rank 1 is in none of them."""

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
        report(died=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return oriel.all_reduce(jnp.ones(4), group=group, tag="t")


def main():
    oriel.init(distributed=False)
    group = oriel.group([2, 0])
    if oriel.rank() in group.ranks:
        try:
            jax.block_until_ready(globals()[sys.argv[1]](group))
            report(text=None)
        except Exception as error:
            report(text=str(error))
    try:
        oriel.finalize()
    except oriel.OrielError:
        pass


main()
