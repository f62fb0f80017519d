"""One big all-reduce between processes: large.py BYTES"""

import sys

import jax
import jax.numpy as jnp
import oriel
from common import report


def main():
    count = int(sys.argv[1]) // 4
    oriel.init(distributed=False)

    @jax.jit
    def step(v):
        return oriel.all_reduce(v)

    x = jnp.arange(count, dtype=jnp.int32) * (oriel.rank() + 1)
    wanted = sum(range(1, oriel.size() + 1))
    same = jax.jit(lambda v: (v == jnp.arange(count, dtype=jnp.int32) * wanted).all())
    assert bool(same(step(x)))
    report(ok=True, bytes=count * 4)


main()
