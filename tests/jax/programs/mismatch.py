"""Ranks that ask for different things, then a new world: mismatch.py WHAT"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import report


def main():
    what = sys.argv[1]
    oriel.init(distributed=False)
    odd = oriel.rank() == 1
    x = jnp.ones(4 if odd and what == "size" else 5, jnp.float32)
    if odd and what == "dtype":
        x = x.astype(jnp.int32)
    op = "max" if odd and what == "operation" else "sum"

    def step(v):
        return oriel.all_reduce(v, op=op)

    try:
        jax.jit(step)(x).block_until_ready()
        report(raised=None)
    except Exception as error:
        report(raised=str(error))
    try:
        jax.jit(lambda v: oriel.all_reduce(v * 2))(x).block_until_ready()
        report(later=None)
    except Exception as error:
        report(later=str(error))
    oriel.finalize()
    oriel.init(distributed=False)
    got = jax.jit(lambda v: oriel.all_reduce(v))(jnp.ones(3))
    np.testing.assert_array_equal(got, [oriel.size()] * 3)
    report(again=True)


main()
