"""What profilers show of a program: its instructions' names and scopes."""

import jax
import numpy as np
import oriel
import pytest
from kernels import several
from support import make_mesh, over

CALLS = {
    "all_reduce": lambda v: oriel.all_reduce(v, "x"),
    "all_gather": lambda v: oriel.all_gather(v, "x"),
    "reduce": lambda v: several(np.dtype("float32"), "SUM").reduce(v, axis_name="x"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_its_name(name):
    step = over(make_mesh(), CALLS[name], check_vma=False)
    text = step.lower(jax.ShapeDtypeStruct((8, 8), np.float32)).compile().as_text()
    (line,) = (line for line in text.splitlines() if "custom_call_target" in line)
    target = "oriel_kernel" if name == "reduce" else f"oriel_{name}"
    assert f"%{target}" in line and f'custom_call_target="{target}"' in line
    assert f'op_name="jit(<lambda>)/shard_map/oriel.{name}/{target}"' in line
