"""What each process has goes round a ring, in the words of mpi4jax.

oriel run -n 4 -- python ring.py
"""

import jax
import jax.numpy as jnp
import oriel
import oriel.mpi as mpi

oriel.init(distributed=False)
rank, size = oriel.rank(), oriel.size()
ring = {"source": (rank - 1) % size, "dest": (rank + 1) % size}


@jax.jit
def add_up(x):
    total = passed = x * rank  # a constant of this process's
    for _ in range(size - 1):
        passed = mpi.sendrecv(passed, passed, **ring)
        total += passed
    return total


def cost(x):
    return (rank + 1) * add_up(x).sum()


x = jnp.ones(1000)
total = float(add_up(x)[-1])
slope = float(jax.jit(jax.grad(cost))(x)[-1])
print(f"[proc {rank}/{size}] total={total} slope={slope}", flush=True)
oriel.finalize()
