"""A hot plate that cools down: each process holds some of its rows.

oriel run -n 4 -- python run.py [rows] [steps] [picture.png]"""

import pathlib
import sys

import jax
import numpy as np
import oriel
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

heat = oriel.kernel(pathlib.Path(__file__).with_name("heat.cu"))
K = 0.2


def start(rows, cols):
    """Cold, with two hot discs."""
    y, x = np.mgrid[0:rows, 0:cols]
    discs = [(rows * 0.3, cols * 0.3, rows * 0.15), (rows * 0.65, cols * 0.6, rows * 0.2)]
    u = np.zeros((rows, cols), np.float32)
    for row, col, radius in discs:
        u[(y - row) ** 2 + (x - col) ** 2 < radius**2] = 1
    return u


def by_numpy(u, steps):
    for _ in range(steps):
        p = np.pad(u, 1)
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        u = u + np.float32(K) * (around - np.float32(4) * u)
    return u


def draw(path, before, after):
    try:
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    figure, axes = plt.subplots(1, 2, figsize=(6, 3), layout="constrained")
    for ax, u, title in zip(axes, (before, after), ("at first", "at the end")):
        ax.imshow(u, cmap="inferno", vmin=0, vmax=1)
        ax.set_title(title)
        for r in range(1, oriel.size()):  # where one rank ends and the next begins
            ax.axhline(r * len(u) / oriel.size() - 0.5, color="white", lw=0.5, ls=":")
    figure.savefig(path, dpi=80)
    print(f"wrote {path}")


def main():
    oriel.init()
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    rows = rows // oriel.size() * oriel.size()
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    mesh = Mesh(np.array(jax.devices()), ("x",))
    u = start(rows, rows)

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    def run(mine):
        return heat(mine, cols=rows, steps=steps, k=K, axis_name="x")[0]

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P())
    def collect(mine):
        return oriel.all_reduce(  # everybody's rows, for the picture
            jax.lax.dynamic_update_slice(
                jax.numpy.zeros((rows, rows), mine.dtype),
                mine,
                (jax.lax.axis_index("x") * mine.shape[0], 0),
            ),
            "x",
        )

    x = jax.make_array_from_callback(u.shape, NamedSharding(mesh, P("x")), lambda i: u[i])
    got = np.asarray(collect(run(x)).addressable_data(0))
    off = float(np.abs(got - by_numpy(u, steps)).max())
    print(
        f"[proc {oriel.process_id()}/{oriel.num_processes()}] {rows} x {rows} cells, {steps} "
        f"steps in one call, heat left {got.sum() / u.sum():.3f}, ALL_OK={off < 1e-5}"
    )
    if len(sys.argv) > 3 and oriel.process_id() == 0:
        draw(sys.argv[3], u, got)
    oriel.finalize()


main()
