"""The all-reduce of example 07 inside jit, in turn with the built-in one, as in jax_bench.py:
jax_kernel_bench.py [SAMPLES]."""

import pathlib
import sys

import numpy as np
import oriel
from jax_bench import CALLS, measure, reduces
from jax_common import start

SIZES = [mebibytes << 20 for mebibytes in (1, 16, 64, 256)]
EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "07_my_all_reduce"


def main(samples):
    mesh = start(timeout=20)
    two_shot = oriel.kernel(EXAMPLE / "my_all_reduce.cu").two_shot

    def two_shots(v):
        for _ in range(CALLS):
            v = two_shot(v, axis_name="x")
        return v

    for nbytes in SIZES:
        times = measure(mesh, nbytes, samples, {"two_shot": two_shots, "two_shot beside": reduces})
        ours, built_in = (np.median(values) for values in times.values())
        if oriel.rank() == 0:
            print(
                f"bench jax {nbytes:>9} two_shot {ours:9.2f} us, all_reduce {built_in:9.2f} us, "
                f"{ours / built_in:.3f} times",
                flush=True,
            )
    oriel.finalize()


main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
