"""jax.export: a program that holds calls is refused with the reason."""

import jax
import jax.numpy as jnp
import numpy as np
import oriel
import pytest
from jax import export
from jax.sharding import PartitionSpec as P
from support import make_mesh, over

ALL = [export.DisabledSafetyCheck.custom_call("ALL")]  # of JAX's own checks


@pytest.mark.parametrize("disabled", [(), ALL], ids=["checked", "unchecked"])
@pytest.mark.parametrize("name", ["all_reduce", "barrier"])
def test_refused(name, disabled):
    step = over(make_mesh(), lambda v: getattr(oriel, name)(v, "x"), P("x"), P("x"), False)
    with pytest.raises(NotImplementedError, match=f"oriel.{name} cannot be exported: the program"):
        export.export(step, disabled_checks=disabled)(jnp.ones(8))


def test_what_communicates_nothing_is_exported():
    mesh = make_mesh((1, 8), ("one", "x"))
    step = over(mesh, lambda v: oriel.all_reduce(v, "one"), P("x"), P("x"))
    exported = export.export(step)(jnp.ones(8))
    x = jax.device_put(np.arange(8.0), jax.NamedSharding(mesh, P("x")))
    np.testing.assert_array_equal(jax.jit(exported.call)(x), np.arange(8.0))
