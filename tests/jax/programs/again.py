"""init, finalize and the end of a program: again.py ROUNDS HOW MODE

    HOW: finalize (twice, before the end), nothing, exit (sys.exit), unseen (a
    result nobody looks at), raise (process 1 fails, the others wait for it),
    quit (process 1 leaves with sys.exit(3), the others wait for it)"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import report


def main():
    rounds, how, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    distributed = False if mode == "local" else None
    step = jax.jit(lambda v: oriel.all_reduce(v))
    for i in range(rounds):
        oriel.init(distributed=distributed)
        oriel.init()  # the same world
        got = step(jnp.full(3, oriel.rank() + i, jnp.float32))
        np.testing.assert_array_equal(got, sum(range(oriel.size())) + i * oriel.size())
        if i < rounds - 1 or how == "finalize":
            oriel.finalize()
            oriel.finalize()
    report(ok=True)
    if how == "exit":
        sys.exit(0)
    if how == "unseen" and oriel.process_id() != 0:
        step(jnp.ones(1 << 20, jnp.float32))
        return
    if how == "unseen":
        got = step(jnp.ones(1 << 20, jnp.float32))
        np.testing.assert_array_equal(got, oriel.size())
        report(seen=True)
    if how in ("raise", "quit") and oriel.process_id() == 1:
        report(left=time.monotonic())
        if how == "quit":
            sys.exit(3)
        raise RuntimeError("on purpose")
    if how in ("raise", "quit"):
        try:
            step(jnp.ones(3, jnp.float32)).block_until_ready()
        except Exception as error:
            report(raised=time.monotonic(), text=str(error))
            sys.exit(4)


main()
