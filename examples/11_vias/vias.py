"""One all-reduce by every via that this world has: vias.py [ELEMENTS]"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel

N = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20
CALLS = 20

oriel.init()
me, size = oriel.rank(), oriel.size()


def measure(via):
    """Whether every sum was right, and the time of one of CALLS calls in one program."""

    @jax.jit
    def chain(x):
        for _ in range(CALLS):
            x = oriel.all_reduce(x, via=via) * (1 / size)
        return x

    x = jnp.full(N, float(me), jnp.float32)
    total = oriel.all_reduce(x, via=via)
    right = bool(np.all(np.asarray(total) == sum(range(size))))
    jax.block_until_ready(chain(x))
    began = time.perf_counter()
    jax.block_until_ready(chain(x))
    return right, (time.perf_counter() - began) / CALLS


wrong = 0
for via, missing in oriel.all_reduce_vias().items():
    if missing:
        line = f"not here: {missing}"
    else:
        right, seconds = measure(via)
        wrong += not right
        line = f"{'right' if right else 'WRONG'}, {1e6 * seconds:.0f} us"
    if me == 0:
        print(f"{via:12} {line}", flush=True)
oriel.finalize()
raise SystemExit(wrong > 0)
