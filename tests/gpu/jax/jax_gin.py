"""A kernel of one's own inside jit on ranks that count as on different machines: the halo
exchange of tests/kernels/machines.cu between operations of oriel's, run after run, against
NumPy: jax_gin.py [runs]."""

import pathlib
import sys

import numpy as np
import oriel
from jax_common import own, poison, row, sharded, spread, start

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
ROWS, COLS, STEPS, K = 29, 173, 12, 0.1


def heat(plate):
    k, four = np.float32(K), np.float32(4)
    for _ in range(STEPS):
        edged = np.pad(plate, 1)
        around = edged[:-2, 1:-1] + edged[2:, 1:-1] + edged[1:-1, :-2] + edged[1:-1, 2:]
        plate = plate + k * (around - four * plate)
    return plate


def check_heat(mesh, runs):
    mine = oriel.kernel(KERNELS / "machines.cu")
    rng = np.random.default_rng(1)
    shape = (ROWS * COLS,)

    def step(u):
        a, _, _ = mine.heat_put(
            u[0], cols=COLS, steps=STEPS, k=K, axis_name="x", out=(shape, shape, (4 * COLS,))
        )
        return a[None], oriel.all_reduce(a, "x")[None]

    program = sharded(mesh, step, check_vma=False)
    for run in range(runs):
        if run % 10 == 0:
            poison(8, 2)
        plate = rng.random((oriel.size() * ROWS, COLS), np.float32)
        mine_now, total = map(own, program(spread(mesh, plate.reshape(oriel.size(), -1))))
        want = heat(plate).reshape(oriel.size(), -1)
        np.testing.assert_allclose(mine_now[0], want[oriel.rank()], atol=1e-5, err_msg=f"{run}")
        np.testing.assert_allclose(total[0], want.sum(0), atol=1e-4)
    row(f"heat, {runs} runs")


mesh = start()
check_heat(mesh, int(sys.argv[1]) if len(sys.argv) > 1 else 30)
oriel.finalize()
row("end")
