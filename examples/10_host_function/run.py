"""An all-reduce that is a host function of one's own, called inside jax.jit. `make cpu` or
`make gpu` first.

    oriel run -n 2 -- python run.py [elements] [library]"""

import pathlib
import sys

import jax
import numpy as np
import oriel
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

HERE = pathlib.Path(__file__).parent


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20
    library = sys.argv[2] if len(sys.argv) > 2 else HERE / "liball_reduce.so"
    all_reduce = oriel.op(library, "all_reduce", capture=True)
    oriel.init()
    mesh = Mesh(np.array(jax.devices()), ("x",))

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P())
    def step(x):
        return all_reduce(x.reshape(-1), axis_name="x", replicated=True)

    # Rank r brings r, everywhere.
    values = np.repeat(np.arange(oriel.size(), dtype=np.float32)[:, None], n, axis=1)
    x = jax.make_array_from_callback(
        values.shape, NamedSharding(mesh, P("x")), lambda index: values[index]
    )
    got = np.asarray(step(x).addressable_data(0))
    expected = float(sum(range(oriel.size())))
    print(
        f"[proc {oriel.process_id()}/{oriel.num_processes()}] N={n} expected={expected} "
        f"got[0]={got[0]} got[-1]={got[-1]} ALL_OK={bool((got == expected).all())}"
    )
    oriel.finalize()


main()
