"""The ABI oriel declares for itself is that of the installed jaxlib."""

import subprocess
from pathlib import Path

import jax

ROOT = Path(__file__).resolve().parents[2]


def test_layouts_are_those_of_jaxlib():
    done = subprocess.run(
        [
            "cc",
            "-std=gnu11",
            "-fsyntax-only",
            "-I",
            jax.ffi.include_dir(),
            "-I",
            ROOT / "src",
            ROOT / "tests" / "jax" / "abi.c",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
