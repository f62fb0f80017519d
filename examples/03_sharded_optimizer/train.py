"""Data-parallel training where every device keeps one part of the optimizer's state.

oriel run -n 4 -- python train.py [steps]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

SAMPLES, FEATURES, HIDDEN = 128, 5, 16


def make_problem(parts):
    """Start values as one vector that `parts` divide, the loss of it, and data."""
    rng = np.random.default_rng(0)
    net = {
        "inner": rng.normal(size=(FEATURES, HIDDEN)).astype(np.float32),
        "outer": rng.normal(size=HIDDEN).astype(np.float32) / HIDDEN,
    }
    flat, unravel = ravel_pytree(net)
    start = np.pad(flat, (0, -flat.size % parts))

    def loss(params, x, y):
        net = unravel(params[: flat.size])
        return jnp.mean((jnp.tanh(x @ net["inner"]) @ net["outer"] - y) ** 2)

    x = rng.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
    return start, loss, (x, np.sin(x.sum(1)))


def adam(params, m, v, gradient, t):
    m = 0.9 * m + 0.1 * gradient
    v = 0.99 * v + 0.01 * gradient**2
    change = 0.01 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-8)
    return params - change, m, v


def train_on_one(start, loss, data, steps):
    @jax.jit
    def step(state, t, data):
        value, gradient = jax.value_and_grad(loss)(state[0], *data)
        return adam(*state, gradient, t), value

    state = start, np.zeros_like(start), np.zeros_like(start)
    for t in range(1, steps + 1):
        state, value = step(state, float(t), data)
    return np.asarray(state[0]), float(value)


def train_on_all(mesh, start, loss, data, steps):
    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=(P("x"), P(), P("x")), out_specs=(P("x"), P()))
    def step(state, t, data):
        params, m, v = state  # this device's parts
        everything = oriel.all_gather(params, "x", tiled=True)
        value, gradient = jax.value_and_grad(loss)(everything, *data)
        gradient = oriel.reduce_scatter(gradient, "x", tiled=True, op="mean")
        return adam(params, m, v, gradient, t), oriel.all_reduce(value, "x", op="mean")

    def distribute(array):
        sharding = NamedSharding(mesh, P("x"))
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    state = jax.tree.map(distribute, (start, np.zeros_like(start), np.zeros_like(start)))
    data = jax.tree.map(distribute, data)
    for t in range(1, steps + 1):
        state, value = step(state, float(t), data)
    return state[0], float(value)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    oriel.init()
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    start, loss, data = make_problem(oriel.size())
    params, value = train_on_all(mesh, start, loss, data, steps)
    expected, expected_value = train_on_one(start, loss, data, steps)
    ok = all(
        np.allclose(shard.data, expected[shard.index], rtol=1e-5, atol=1e-5)
        for shard in params.addressable_shards
    )
    print(
        f"[proc {oriel.process_id()}/{oriel.num_processes()}] {start.size} parameters, "
        f"{start.size // oriel.size()} on each device, loss {value:.4f}, "
        f"on one device {expected_value:.4f}, ALL_OK={ok}",
        flush=True,
    )
    oriel.finalize()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
