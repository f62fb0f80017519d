"""Example 09 on GPUs: the bits of the two steps, and the times of both ways in turn. Lines for
tests/gpu/report.py, then a table."""

import importlib.util
import json
import pathlib

import numpy as np
import oriel
from jax_common import row, start

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "09_fused_reduce_scatter"
SIZES = [0.25, 1, 4, 8, 16, 64]


def load():
    spec = importlib.util.spec_from_file_location("fused", EXAMPLE / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    example = load()
    mesh = start(timeout=20)
    for rows, cols in ((8, 100), (64, 4096), (2, 7), (34, 1023)):
        assert example.compare(mesh, rows, cols), (rows, cols)
    row("the bits of the two steps")
    lines = []
    for mebibytes in SIZES:
        samples = example.bench(mesh, mebibytes)
        for name, values in zip(("fused", "apart"), samples):
            print(
                "sample "
                + json.dumps(
                    {
                        "op": f"jax reduce_scatter+bias {name}",
                        "ranks": oriel.size(),
                        "processes": oriel.num_processes(),
                        "way": "jit",
                        "bytes": int(mebibytes * (1 << 20)),
                        "us": [round(value, 3) for value in values],
                    }
                ),
                flush=True,
            )
        one, two = np.median(samples, axis=1)
        lines.append(
            f"bench reduce_scatter+bias+relu {mebibytes:6g} MiB: in one kernel "
            f"{one:8.2f} us, one after the other {two:8.2f} us, {one / two:.2f} times"
        )
    if oriel.rank() == 0:
        print("\n".join(lines), flush=True)
    oriel.finalize()
    row("end")


main()
