"""Kernels of one's own on GPUs: the examples' all-reduces, with the bits of
oriel.all_reduce, replayed; a kernel that waits for a signal nobody sends."""

import pathlib
import tempfile

import numpy as np
import oriel
from jax_common import own, poison, row, sharded, spread, start

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
WAITS = """#include <oriel/kernel.h>
ORIEL_KERNEL(waits)(oriel_team *team, const float *x, float *y)
{
    oriel_wait(team, 3, 1);
    oriel_for_each (i, team, oriel_count(team, x)) {
        y[i] = x[i];
    }
}
"""


def check_sums(mesh, count, runs):
    mine = oriel.kernel(EXAMPLES / "07_my_all_reduce" / "my_all_reduce.cu")
    rng = np.random.default_rng(count)

    def step(v):
        v = v[0]
        twice = mine.one_shot(v, scale=2.0, axis_name="x")
        once = mine.two_shot(v, axis_name="x")
        again = mine.two_shot(once, axis_name="x")
        return twice[None], once[None], again[None], oriel.all_reduce(v, "x")[None]

    program = sharded(mesh, step, check_vma=False)
    for run in range(runs):
        if run % 10 == 0:
            poison(8, 2)
        x = rng.normal(size=(oriel.size(), count)).astype(np.float32)
        twice, once, again, total = map(own, program(spread(mesh, x)))
        np.testing.assert_array_equal(once, total, err_msg=f"run {run}")
        np.testing.assert_array_equal(twice, 2 * total)
        np.testing.assert_array_equal(again, total * oriel.size())
        wanted = x.astype(np.float64).sum(0)
        np.testing.assert_allclose(total[0], wanted, rtol=1e-5, atol=1e-5)
    row(f"sums of {count} elements")


def check_waits(mesh, folder):
    path = pathlib.Path(folder, "waits.cu")
    path.write_text(WAITS)
    waits = oriel.kernel(path)
    step = sharded(mesh, lambda v: waits(v, axis_name="x"), check_vma=False)
    x = spread(mesh, np.ones((oriel.size(), 100), np.float32))
    assert np.isnan(own(step(x))).all()
    try:
        oriel.check()
    except oriel.OrielError as error:
        assert "kernel waits" in str(error) and "2.0 s" in str(error), error
    else:
        raise AssertionError("the kernel's failure was not raised")
    oriel.finalize()
    row("a kernel that never ends")


def main():
    mesh = start(timeout=20)
    check_sums(mesh, 1000, 50)
    check_sums(mesh, 1 << 20, 20)
    oriel.check()
    oriel.finalize()
    with tempfile.TemporaryDirectory() as folder:  # it is compiled when it is called
        check_waits(start(timeout=2.0), folder)
    row("end")


main()
