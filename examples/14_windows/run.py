"""A window from step to step: nothing that goes through it is copied.

oriel run -n 4 -- python run.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

oriel.init()
mesh = Mesh(jax.devices(), "x")
rank, size = oriel.rank(), oriel.size()
state = oriel.window((1024, 256), jnp.float32, mesh, "x")  # of each device, zeroed
total = oriel.window((1024, 256), jnp.float32, mesh, "x")


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=(P("x"), P("x"), P()), out_specs=(P("x"), P("x")))
def step(state, total, k):
    written = oriel.store(jnp.full(state.shape, k) + jax.lax.axis_index("x"), state)
    summed = oriel.all_reduce(state, "x", after=written, into=total)  # from one window to another
    return oriel.load(total, after=summed).sum()[None], summed


for k in range(3):
    sums, _ = step(state, total, jnp.float32(k))
    mean = float(sums.addressable_shards[0].data[0]) / total.array.size * size
    print(f"[proc {rank}/{size}] step {k}: mean of the sums {mean}", flush=True)

jax.block_until_ready(oriel.all_reduce(jnp.ones(1)))  # all have written
right = state.peer((rank + 1) % size)  # the neighbour's part, where it lies
first, second = (oriel.data_ptr(total.array.addressable_shards[0].data) for _ in range(2))
print(f"[proc {rank}/{size}] right={float(right[0, 0])} one_address={first == second}", flush=True)
assert np.array_equal(state.read(rank=(rank + 1) % size), right)
oriel.finalize()
