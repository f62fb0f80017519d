"""init, finalize and the end of a program: again.py ROUNDS HOW MODE

HOW: finalize (twice, then a world of another size), exit (sys.exit), raise
(process 1 fails, the others wait for it), quit (process 1 leaves by
sys.exit(3), the others wait for it)"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import report

step = jax.jit(lambda v: oriel.all_reduce(v))


def run_rounds(rounds, distributed):
    for i in range(rounds):
        if i > 0:
            oriel.finalize()
            oriel.finalize()
        oriel.init(distributed=distributed)
        oriel.init()  # the same world
        operand = jnp.full(3, oriel.rank() + i, jnp.float32)
        if oriel.process_id() == 0:  # one program, whichever line calls it
            got = step(operand)
        else:
            got = step(operand)
        np.testing.assert_array_equal(got, sum(range(oriel.size())) + i * oriel.size())
    report(ok=True)


def end_alone():
    """The same function in a world of another size."""
    oriel.finalize()
    oriel.init(process_id=0, num_processes=1, distributed=False)
    np.testing.assert_array_equal(step(jnp.full(3, 7, jnp.float32)), 7)
    oriel.finalize()


def end_badly(how):
    if oriel.process_id() == 1:
        report(left=time.monotonic())
        if how == "quit":
            sys.exit(3)
        raise RuntimeError("on purpose")
    try:
        step(jnp.ones(3, jnp.float32)).block_until_ready()
    except Exception as error:
        report(raised=time.monotonic(), text=str(error))
        sys.exit(4)


def main():
    rounds, how, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    run_rounds(rounds, False if mode == "local" else None)
    if how == "finalize":
        end_alone()
    elif how == "exit":
        sys.exit(0)
    else:
        end_badly(how)


main()
