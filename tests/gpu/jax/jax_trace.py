"""What a profiler shows: in jax.profiler's trace the kernels have names, and each tells which
operation it belongs to. With NVTX_INJECTION64_PATH set to CUPTI's file oriel's ranges are
there, too. jax_trace.py FOLDER [nvtx]: with CUPTI's file from NVIDIA's wheels"""

import glob
import importlib.util
import os
import pathlib
import sys

import jax
import numpy as np
import oriel
from jax_common import row, sharded, spread, start

ROOT = pathlib.Path(__file__).resolve().parents[3]
NVTX = sys.argv[2:] == ["nvtx"]


def find_cupti():
    for folder in importlib.util.find_spec("nvidia").submodule_search_locations:
        for inner in ("cu13", "cuda_cupti"):
            for file in glob.glob(f"{folder}/{inner}/lib/libcupti.so.*"):
                return file
    sys.exit("there is no libcupti.so in NVIDIA's wheels")


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
    if NVTX:
        os.environ["NVTX_INJECTION64_PATH"] = find_cupti()
    mesh = start(timeout=20)
    n = oriel.size()
    mine = oriel.kernel(ROOT / "examples" / "07_my_all_reduce" / "my_all_reduce.cu")
    step = sharded(mesh, lambda v: mine.two_shot(oriel.all_reduce(v, "x"), axis_name="x"),
                   check_vma=False)  # fmt: skip
    x = spread(mesh, np.ones((n, 1 << 20), np.float32))
    jax.block_until_ready(step(x))
    planes = trace(f"{folder}/{oriel.rank()}", lambda: jax.block_until_ready(step(x)))
    shown = [f"{plane.name} {describe(event)}" for plane in planes
             for line in plane.lines for event in line.events]  # fmt: skip
    print("\n".join(f"event {text[:500]}" for text in shown if "oriel" in text))
    wanted = {
        "the kernel": ("/device:GPU:0 oriel_large_f32_sum",),
        "its instruction": ("/device:GPU:0 oriel_large_f32_sum", "hlo_op=oriel_all_reduce"),
        "a person's kernel": ("/device:GPU:0 oriel_entry_two_shot",),
        "its instruction too": ("/device:GPU:0 oriel_entry_two_shot", "hlo_op=oriel_kernel"),
    }
    if NVTX:
        wanted = {"the range": (f"NVTX:oriel:oriel.all_reduce, 4194304 bytes, {n} ranks",),
                  "a person's range": ("NVTX:oriel:oriel.two_shot, ",)}  # fmt: skip
    absent = []
    for what, words in wanted.items():
        if any(all(word in text for word in words) for text in shown):
            row(what)
        else:
            absent.append(f"{what} ({' and '.join(words)})")
    assert not absent, f"not in the trace: {', '.join(absent)}"
    oriel.finalize()


main(sys.argv[1])
