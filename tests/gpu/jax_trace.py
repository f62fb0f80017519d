"""What a profiler shows: in jax.profiler's trace the kernels have names, and each tells which
operation it belongs to. With NVTX_INJECTION64_PATH set to CUPTI's file oriel's ranges are
there, too. jax_trace.py FOLDER"""

import glob
import os
import pathlib
import sys

import jax
import numpy as np
import oriel
from jax_common import row, sharded, spread, start

ROOT = pathlib.Path(__file__).resolve().parents[2]
NVTX = "NVTX_INJECTION64_PATH" in os.environ


def trace(folder, run):
    """The planes of a trace of `run`."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    if NVTX:
        options.advanced_configuration = {"gpu_enable_nvtx_tracking": True}
    jax.profiler.start_trace(folder, profiler_options=options)
    run()
    jax.profiler.stop_trace()
    (file,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    return list(jax.profiler.ProfileData.from_file(file).planes)


def describe(event):
    return " ".join([event.name, *(f"{name}={value}" for name, value in event.stats)])


def main(folder):
    mesh = start(timeout=20)
    n = oriel.size()
    mine = oriel.kernel(ROOT / "examples" / "07_my_all_reduce" / "my_all_reduce.cu")
    step = sharded(mesh, lambda v: mine.two_shot(oriel.all_reduce(v, "x"), axis_name="x"),
                   check_vma=False)  # fmt: skip
    x = spread(mesh, np.ones((n, 1 << 20), np.float32))
    jax.block_until_ready(step(x))
    planes = trace(f"{folder}/{oriel.rank()}", lambda: jax.block_until_ready(step(x)))
    on_gpu = [describe(event) for plane in planes if plane.name.startswith("/device:GPU")
              for line in plane.lines for event in line.events]  # fmt: skip
    if oriel.rank() == 0:
        for plane in planes:
            print(f"plane {plane.name}: {[line.name for line in plane.lines]}")
        print("\n".join(f"event {text[:400]}" for text in on_gpu if "oriel" in text))
    wanted = {
        "the kernel": ("oriel_large_f32_sum",),
        "its instruction": ("oriel_large_f32_sum", "hlo_op=oriel_all_reduce"),
        "a person's kernel": ("oriel_entry_two_shot",),
        "its operation": ("oriel_entry_two_shot", "oriel_kernel"),
    }
    if NVTX:
        wanted = {"the range": ("oriel.all_reduce, 4194304 bytes, 2 ranks",),
                  "a person's range": ("oriel.two_shot, ",)}  # fmt: skip
    absent = []
    for what, words in wanted.items():
        if any(all(word in text for word in words) for text in on_gpu):
            row(what)
        else:
            absent.append(f"{what} ({' and '.join(words)})")
    assert not absent, f"not in the trace: {', '.join(absent)}"
    oriel.finalize()


main(sys.argv[1])
