"""The kernels of tests/kernels, by dtype and reduction."""

import functools
import pathlib

import numpy as np
import oriel

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"
TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "oriel_f16",
    "bfloat16": "oriel_bf16",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
}


@functools.cache
def several(dtype, op):
    defines = {"T": TYPES[np.dtype(dtype).name], "OP": f"ORIEL_OP_{op}"}
    return oriel.kernel(KERNELS / "several.cu", defines=defines)
