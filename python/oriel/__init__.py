"""oriel: communication kernels over symmetric memory, callable inside jax.jit.

    import jax, oriel

    oriel.init()

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=P("x"), out_specs=P())
    def step(x):
        return oriel.all_reduce(x, "x")     # as lax.psum

all_gather, reduce_scatter, all_to_all, broadcast, permute, barrier, ragged_all_to_all,
gather, scatter, reduce and scan are called in the same way; send, recv and sendrecv are messages
between two ranks.

Importing it raises PJRT_NPROC where that is unset: XLA's own thread pool must
have more threads than there are devices, or collectives started in different
orders on two devices wait for each other for ever.
"""

from oriel import _other_names, _threads

_threads.reserve()

from oriel._collectives.all_reduce import all_reduce, all_reduce_vias  # noqa: E402  (after the reservation)
from oriel._collectives.barrier import barrier  # noqa: E402
from oriel._collectives.exchange import all_to_all, broadcast, permute  # noqa: E402
from oriel._collectives.gather import all_gather, reduce_scatter  # noqa: E402
from oriel._collectives.groups import group  # noqa: E402
from oriel._collectives.message import recv, send, sendrecv  # noqa: E402
from oriel._collectives.primitive import axis_index  # noqa: E402
from oriel._collectives.ragged import ragged_all_to_all  # noqa: E402
from oriel._collectives.rooted import gather, reduce, scan, scatter  # noqa: E402
from oriel._kernel import kernel  # noqa: E402
from oriel._lib import OrielError, Status, version  # noqa: E402
from oriel._memory.access import load, store  # noqa: E402
from oriel._memory.pointers import data_ptr, from_ptr  # noqa: E402
from oriel._memory.window import Window, is_symmetric, register, window  # noqa: E402
from oriel._op import op  # noqa: E402
from oriel._world import (  # noqa: E402
    check,
    finalize,
    init,
    is_initialized,
    local_size,
    num_processes,
    process_id,
    rank,
    size,
)

__all__ = [
    "OrielError",
    "Status",
    "Window",
    "all_gather",
    "all_reduce",
    "all_reduce_vias",
    "all_to_all",
    "axis_index",
    "barrier",
    "broadcast",
    "check",
    "data_ptr",
    "finalize",
    "from_ptr",
    "gather",
    "group",
    "init",
    "is_initialized",
    "is_symmetric",
    "kernel",
    "load",
    "local_size",
    "num_processes",
    "op",
    "permute",
    "process_id",
    "ragged_all_to_all",
    "rank",
    "recv",
    "reduce",
    "reduce_scatter",
    "register",
    "scan",
    "scatter",
    "send",
    "sendrecv",
    "size",
    "store",
    "version",
    "window",
]


def __getattr__(name):
    if name == "__version__":
        return version()
    raise AttributeError(_other_names.sentence(name))
