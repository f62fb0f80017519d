"""Data-parallel training: the mean of a tree of gradients, by oriel and by lax.

oriel run -n 2 -- python train.py [steps] [picture.png]
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

SAMPLES, WIDTH, LAYERS = 64, 32, 50


def make_problem():
    """The arrays of a deep network, and data for it."""
    rng = np.random.default_rng(0)
    net = [
        {
            "weights": rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 2 / WIDTH**0.5,
            "bias": np.zeros(WIDTH, np.float32),
        }
        for _ in range(LAYERS)
    ]
    x = rng.normal(size=(SAMPLES, WIDTH)).astype(np.float32)
    return net, (x, np.sin(x.sum(1)))


def loss(net, x, y):
    for layer in net:
        x = x + jnp.tanh(x @ layer["weights"] + layer["bias"]) / LAYERS
    return jnp.mean((x.mean(1) - y) ** 2)


def update(net, gradients):
    return jax.tree.map(lambda value, gradient: value - 0.5 * gradient, net, gradients)


@jax.jit
def step_on_one(net, data):
    value, gradients = jax.value_and_grad(loss)(net, *data)
    return update(net, gradients), value


def make_step(mesh, mean):
    """Of each device's part of the data. `mean` takes a tree."""

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=(P(), P("x")), out_specs=P())
    def step(net, data):
        # To JAX the parameters are different ones on each device from here on: otherwise it would
        # sum their gradients by itself.
        own = lax.pcast(net, "x", to="varying")
        value, gradients = jax.value_and_grad(loss)(own, *data)
        return update(net, mean(gradients)), mean(value)

    return step


def train(step, net, data, steps):
    """(parameters, last loss, seconds of each step but the first, which compiles)"""
    times = []
    for _ in range(steps):
        begun = time.perf_counter()
        net, value = jax.block_until_ready(step(net, data))
        times.append(time.perf_counter() - begun)
    return net, float(value), times[1:]


def close(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)


def show(times, picture):
    """A picture of the step times, or a table where there is no matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed; milliseconds of each step:")
        for i, row in enumerate(zip(*times.values(), strict=True), 2):
            print(f"{i:5}", *(f"{name} {1e3 * t:9.3f}" for name, t in zip(times, row)))
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    for name, seconds in times.items():
        pyplot.plot(range(2, len(seconds) + 2), 1e3 * np.array(seconds), label=name)
    pyplot.yscale("log")
    pyplot.xlabel("step")
    pyplot.ylabel("ms")
    pyplot.legend()
    pyplot.savefig(picture)
    print(f"wrote {picture}")


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    oriel.init()
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    net, data = make_problem()
    sharding = NamedSharding(mesh, P("x"))
    spread = [jax.make_array_from_callback(v.shape, sharding, lambda i, v=v: v[i]) for v in data]
    means = {
        "oriel": lambda tree: oriel.all_reduce(tree, "x", op="mean"),
        "lax": lambda tree: lax.pmean(tree, "x"),
    }
    trained = {k: train(make_step(mesh, mean), net, spread, steps) for k, mean in means.items()}
    expected, value, _ = train(step_on_one, net, data, steps)
    ok = all(close(result, expected) for result, _, _ in trained.values())
    arrays = jax.tree.leaves(net)
    print(
        f"[proc {oriel.process_id()}/{oriel.num_processes()}] {len(arrays)} arrays, "
        f"{sum(v.nbytes for v in arrays)} bytes, loss {trained['oriel'][1]:.4f}, "
        f"with lax {trained['lax'][1]:.4f}, on one device {value:.4f}, ALL_OK={ok}",
        flush=True,
    )
    if oriel.process_id() == 0:
        times = {name: seconds for name, (_, _, seconds) in trained.items()}
        medians = (f"{name} {1e6 * np.median(t):.0f} us" for name, t in times.items())
        print("a step, median:", ", ".join(medians))
        if len(sys.argv) > 2:
            show(times, sys.argv[2])
    oriel.finalize()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
