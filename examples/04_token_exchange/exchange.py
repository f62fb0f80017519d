"""Tokens travel to the devices of their experts and back.

oriel run -n 4 -- python exchange.py [tokens of each device]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH, EXPERTS_PER_DEVICE = 8, 2


def exclusive_cumsum(sizes):
    return jnp.cumsum(sizes, 0) - sizes


def plan(owner, devices):
    """Four vectors for ragged_all_to_all, of rows sorted by `owner`, and the same
    for the way back."""
    send_sizes = jnp.bincount(owner, length=devices)
    input_offsets = exclusive_cumsum(send_sizes)
    # Row i: how many rows device i sends to each device. They arrive in device order.
    table = oriel.all_gather(send_sizes, "x")
    output_offsets = exclusive_cumsum(table)[lax.axis_index("x")]
    recv_sizes = oriel.all_to_all(send_sizes, "x", 0, 0, tiled=True)
    forth = input_offsets, send_sizes, output_offsets, recv_sizes
    came_to = exclusive_cumsum(recv_sizes)
    came_from = oriel.all_to_all(input_offsets, "x", 0, 0, tiled=True)
    return forth, (came_to, recv_sizes, came_from, send_sizes)


def apply_experts(tokens, expert, weights):
    """`weights` are those of this device's experts alone."""
    return tokens * weights[expert % EXPERTS_PER_DEVICE]


def exchange(tokens, expert, weights):
    devices = lax.axis_size("x")
    owner = expert // EXPERTS_PER_DEVICE
    order = jnp.argsort(owner)
    forth, back = plan(owner, devices)
    room = devices * tokens.shape[0]  # all tokens may come here

    def send(rows, into, way):
        return oriel.ragged_all_to_all(rows, into, *way, axis_name="x")

    here = send(tokens[order], jnp.zeros((room, WIDTH)), forth)
    expert_here = send(expert[order], jnp.zeros(room, expert.dtype), forth)
    done = apply_experts(here, expert_here, weights)
    returned = send(done, jnp.zeros_like(tokens), back)
    return jnp.zeros_like(tokens).at[order].set(returned)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    oriel.init()
    devices = jax.device_count()
    mesh = jax.make_mesh((devices,), ("x",))
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(devices * count, WIDTH)).astype(np.float32)
    weights = rng.normal(size=(devices * EXPERTS_PER_DEVICE, WIDTH)).astype(np.float32)
    # The first experts are the most wanted.
    expert = (len(weights) * rng.random(len(tokens)) ** 2).astype(np.int32)

    def distribute(array):
        sharding = NamedSharding(mesh, P("x"))
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    step = jax.jit(jax.shard_map(exchange, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    got = step(*map(distribute, (tokens, expert, weights)))
    expected = tokens * weights[expert]
    ok = all((shard.data == expected[shard.index]).all() for shard in got.addressable_shards)
    print(
        f"[proc {oriel.process_id()}/{oriel.num_processes()}] {len(tokens)} tokens to "
        f"{len(weights)} experts and back, ALL_OK={bool(ok)}",
        flush=True,
    )
    oriel.finalize()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
