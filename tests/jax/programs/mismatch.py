"""Ranks that ask for different things; after each time a new world."""

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import report


def asked(what, odd):
    """What a rank asks for."""
    if what == "kind" and odd:
        return oriel.broadcast
    if what == "program" and odd:  # its first call is the same, but in another program
        return lambda v: oriel.all_reduce(oriel.all_reduce(v))
    if what == "root":
        return lambda v: oriel.broadcast(v, root=int(odd))
    return lambda v: oriel.all_reduce(v, op="max" if odd and what == "operation" else "sum")


def differ(what):
    odd = oriel.rank() == 1
    x = jnp.ones(4 if odd and what == "size" else 5, jnp.float32)
    if odd and what == "dtype":
        x = x.astype(jnp.int32)
    function = asked(what, odd)
    said = {}
    for when, scale in (("raised", 1), ("later", 2)):
        try:
            jax.jit(lambda v: function(v * scale))(x).block_until_ready()
            said[when] = None
        except Exception as error:
            said[when] = str(error)
    report(what=what, **said)


def main():
    for what in ("size", "dtype", "operation", "kind", "root", "program"):
        oriel.init(distributed=False, timeout=1.5 if what == "program" else None)
        got = jax.jit(oriel.all_reduce)(jnp.ones(3))
        np.testing.assert_array_equal(got, [oriel.size()] * 3)
        differ(what)
        oriel.finalize()
    oriel.init(distributed=False)
    np.testing.assert_array_equal(oriel.all_reduce(jnp.ones(3)), [oriel.size()] * 3)
    report(again=True)


main()
