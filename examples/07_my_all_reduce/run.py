"""Two all-reduces of one's own, called inside jax.jit.

oriel run -n 4 -- python run.py [elements]"""

import pathlib
import sys

import jax
import numpy as np
import oriel
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

mine = oriel.kernel(pathlib.Path(__file__).with_name("my_all_reduce.cu"))


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 16
    oriel.init()
    mesh = Mesh(np.array(jax.devices()), ("x",))

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P())
    def step(x):
        x = x.reshape(-1)
        twice = mine.one_shot(x, scale=2.0, axis_name="x", replicated=True)
        once = mine.two_shot(x, axis_name="x", replicated=True)
        return twice, once, oriel.all_reduce(x, "x")

    # Rank r brings r, r + 0.5, r + 1, ...
    values = np.arange(oriel.size())[:, None] + 0.5 * np.arange(n, dtype=np.float32) % 7
    values = values.astype(np.float32)
    x = jax.make_array_from_callback(
        values.shape, NamedSharding(mesh, P("x")), lambda index: values[index]
    )
    twice, once, sums = (np.asarray(y.addressable_data(0)) for y in step(x))
    # In rank order, as the library does: the same bits.
    ok = np.array_equal(once, sums) and np.array_equal(twice, 2 * sums)
    print(
        f"[proc {oriel.process_id()}/{oriel.num_processes()}] {n} elements, "
        f"got[0]={once[0]} got[-1]={once[-1]}, bits as oriel.all_reduce: {ok}"
    )
    oriel.finalize()


main()
