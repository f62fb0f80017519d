"""Every process fills an array with its number; one all-reduce adds them up.

oriel run -n 4 -- python all_reduce.py
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel

N = 1048576


@jax.jit
def add_up(x):
    return oriel.all_reduce(x)


def main():
    oriel.init()
    process, processes = oriel.process_id(), oriel.num_processes()
    expected = float(sum(range(processes)))
    got = np.asarray(add_up(jnp.full(N, process, jnp.float32)))
    ok = bool((got == expected).all())
    print(
        f"[proc {process}/{processes}] N={N} expected={expected} "
        f"got[0]={got[0]} got[-1]={got[-1]} ALL_OK={ok}",
        flush=True,
    )
    oriel.finalize()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
