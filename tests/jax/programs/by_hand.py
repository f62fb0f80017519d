"""Places given by hand: by_hand.py PROCESS PROCESSES STORE SECRET MODE"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from common import report


def main():
    process, processes, store, secret, mode = sys.argv[1:]
    oriel.init(
        int(process),
        int(processes),
        store,
        secret=secret,
        distributed=False if mode == "local" else None,
        timeout=20,
    )
    assert jax.process_count() == (1 if mode == "local" else int(processes))
    for change in ({"timeout": 3}, {"process_id": 5, "num_processes": 6}, {"secret": "other"}):
        try:
            oriel.init(**change)
            raise AssertionError(f"init({change}) was accepted")
        except oriel.OrielError as error:
            assert error.status == oriel.Status.INVALID
            assert "other" not in str(error).replace("another", "")
    got = jax.jit(oriel.all_reduce)(jnp.full(4, oriel.rank() + 1.0))
    np.testing.assert_array_equal(got, sum(range(1, oriel.size() + 1)))
    report(ok=True)


main()
