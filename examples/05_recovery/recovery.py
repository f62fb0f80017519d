"""An operation fails; the processes that are left make a new world and go on.

oriel run -n 3 --grace 60 -- python recovery.py 20 1        process 1 is lost in step 20
ORIEL_FAULT=operation:20=fail@1 oriel run -n 3 -- python recovery.py
"""

import os
import re
import signal
import sys

import jax
import jax.numpy as jnp
import oriel

STEPS = 40
# JAX raises the second where a call fails before it has returned.
FAILURES = jax.errors.JaxRuntimeError, ValueError


@jax.jit
def advance(state, contribution):
    return state + oriel.all_reduce(contribution)


def lost_process(sentence):
    """Its number in the world that failed; None when all are still there."""
    found = re.search(r"process (\d+) \(pid \d+\) is gone", sentence)
    return int(found[1]) if found else None


def renew(alive, sentence):
    """Leaves the failed world and makes one of those that are left.

    All of them got the same cause, so all draw the same conclusion."""
    lost = lost_process(sentence)
    left = [name for number, name in enumerate(alive) if number != lost]
    me = left.index(alive[oriel.process_id()])
    oriel.finalize()
    oriel.init(process_id=me, num_processes=len(left), distributed=False)
    return left


def main():
    last_step, victim = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (None, None)
    oriel.init(distributed=False)  # JAX's own runtime ends all processes when one dies
    alive = list(range(oriel.num_processes()))  # by their first numbers
    name = oriel.process_id()
    contribution = jnp.full(1000, name + 1, jnp.float32)
    state = jnp.zeros(1000, jnp.float32)
    expected = 0
    step = 0
    while step < STEPS:
        if (step, name) == (last_step, victim):
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            # Wait for the result here: it came on all or on none, so that all are
            # in the same step when it failed, and `state` is that of the step before.
            state = advance(state, contribution).block_until_ready()
        except FAILURES as error:
            print(f"step {step}: {error}", flush=True)
            alive = renew(alive, str(error))
            continue
        expected += sum(other + 1 for other in alive)
        step += 1
    ok = bool((state == expected).all())
    print(f"[proc {name}] {len(alive)} processes left, {step} steps, ALL_OK={ok}", flush=True)
    oriel.finalize()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
