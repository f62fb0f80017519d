"""The names and the order of arguments of mpi4jax: a program changes its import.

    import oriel.mpi as mpi4jax

    total = mpi4jax.allreduce(x, op=MPI.SUM, comm=MPI.COMM_WORLD)

Each process has one rank, and a program of its own. As in MPI, the calls of a communicator belong
together in the order in which each rank makes them, wherever they stand in its program; messages in
the order of those with one source, destination and tag. `op` is one of this module's or of
mpi4py's, `comm` one of mpi4py's, an oriel.group or None, the whole world. The first call makes the
world, if oriel.init has not. docs/api.md says where this differs from mpi4jax."""

import contextlib
import operator
import sys

import jax
import jax.numpy as jnp

from oriel import _calls, _world
from oriel._collectives import all_reduce as _all_reduce
from oriel._collectives import groups as _groups
from oriel._collectives import message as _message
from oriel._collectives import primitive as _primitive
from oriel._collectives import rooted as _rooted
from oriel._collectives.all_reduce import all_reduce as _reduce_all
from oriel._collectives.barrier import barrier as _barrier
from oriel._collectives.exchange import all_to_all, broadcast
from oriel._collectives.gather import all_gather

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "BAND",
    "BOR",
    "BXOR",
    "LAND",
    "LOR",
    "LXOR",
    "MAX",
    "MIN",
    "PROD",
    "SUM",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "bcast",
    "gather",
    "has_cuda_support",
    "has_sycl_support",
    "recv",
    "reduce",
    "scan",
    "scatter",
    "send",
    "sendrecv",
]

SUM, PROD, MIN, MAX = "SUM", "PROD", "MIN", "MAX"
LAND, LOR, LXOR = "LAND", "LOR", "LXOR"
BAND, BOR, BXOR = "BAND", "BOR", "BXOR"
ANY_SOURCE = ANY_TAG = -1

_NAMES = SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR
_NONE = object()  # a token that nobody gave
_SEQUENCE = "mpi"  # the tag of all calls but messages


def allgather(x, *, comm=None, token=_NONE):
    """The `x` of all ranks along a new first dimension."""
    with _making("allgather", comm, token) as group:
        return all_gather(jnp.asarray(x), group)


def allreduce(x, op, *, comm=None, token=_NONE):
    """The reduction of the `x` of all ranks.

    The transpose of a sum is the identity, as mpi4jax has it: the result is one value, which all
    ranks know. oriel.all_reduce has lax's rule, by which each rank's result is a value of its own.
    """
    with _making("allreduce", comm, token) as group:
        x = _primitive.check_array("mpi.allreduce", jnp.asarray(x))
        if _name_of("allreduce", op) == SUM and x.dtype != bool:
            return _sum_of(x, group)
        return _reduced("allreduce", x, op, lambda x, op: _reduce_all(x, group, op))


def alltoall(x, *, comm=None, token=_NONE):
    """Of a first dimension with an entry for each rank: entry i goes to rank i, and comes from it."""
    with _making("alltoall", comm, token) as group:
        x = _with_blocks("Alltoall", jnp.asarray(x), group)
        return all_to_all(x, group, 0, 0)


def barrier(*, comm=None, token=_NONE):
    """Returns, outside of jit, once all ranks have come."""
    with _making("barrier", comm, token) as group:
        jax.block_until_ready(_barrier(jnp.zeros((), jnp.int32), group))


def bcast(x, root, *, comm=None, token=_NONE):
    """The `x` of rank `root`, of the shape and dtype of `x` here."""
    with _making("bcast", comm, token) as group:
        return broadcast(jnp.asarray(x), group, root)


def gather(x, root, *, comm=None, token=_NONE):
    """At `root` the `x` of all ranks along a new first dimension; elsewhere `x`."""
    with _making("gather", comm, token) as group:
        return _rooted.gather(jnp.asarray(x), group, root)


def reduce(x, op, root, *, comm=None, token=_NONE):
    """At `root` the reduction of the `x` of all ranks; elsewhere `x`."""
    with _making("reduce", comm, token) as group:
        x = jnp.asarray(x)
        y = _reduced("reduce", x, op, lambda x, op: _rooted.reduce(x, group, op, root))
        return y if _groups.index_in(group) == root or _name_of("reduce", op) == SUM else x


def scan(x, op, *, comm=None, token=_NONE):
    """The reduction of the `x` of the ranks up to this one."""
    with _making("scan", comm, token) as group:
        x = jnp.asarray(x)
        return _reduced("scan", x, op, lambda x, op: _rooted.scan(x, group, op))


def scatter(x, root, *, comm=None, token=_NONE):
    """Entry i along the first dimension of the `x` of `root` goes to rank i; elsewhere `x` says
    what shape and dtype that is."""
    with _making("scatter", comm, token) as group:
        x = jnp.asarray(x)
        if _groups.index_in(group) == root:
            _with_blocks("Scatter", x, group)
        return _rooted.scatter(x, group, root)


def send(x, dest, *, tag=0, comm=None, token=_NONE):
    """Sends `x` to rank `dest`, and waits for nobody. It has no derivative; sendrecv has."""
    with _making("send", comm, token, tag) as group:
        _message.send(_constant(jnp.asarray(x), "send"), dest, group=group)


def recv(x, source=ANY_SOURCE, *, tag=ANY_TAG, comm=None, status=None, token=_NONE):
    """What rank `source` sends, of the shape and dtype of `x`; without a tag, what it sends without
    one. `status` is filled when the call is traced. It has no derivative; sendrecv has."""
    with _making("recv", comm, token, tag) as group:
        source = _source_of("recv", source, group)
        _tell(status, source, tag)
        return _message.recv(_constant(jnp.asarray(x), "recv"), source, group=group)


def sendrecv(
    sendbuf,
    recvbuf,
    source,
    dest,
    *,
    sendtag=0,
    recvtag=ANY_TAG,
    comm=None,
    status=None,
    token=_NONE,
):
    """Sends `sendbuf` to rank `dest` and gives what rank `source` sends, of the shape and dtype of
    `recvbuf`; without `recvtag`, what it sends with the tag that this rank sends with. Other
    arguments are as in send and recv; it has derivatives."""
    with _making("sendrecv", comm, token, sendtag) as group:
        source = _source_of("sendrecv", source, group)
        recvtag = sendtag if recvtag == ANY_TAG else recvtag
        _tell(status, source, recvtag)
        sent, wanted = jnp.asarray(sendbuf), jnp.asarray(recvbuf)
        recvtag = _tag_of("sendrecv", recvtag, group)
        return _message.exchange(sent, wanted, source, dest, group, recvtag)


def has_cuda_support():
    """Whether ranks may be GPUs here."""
    return jax.default_backend() == "gpu"


def has_sycl_support():
    return False


# ---- arguments -----------------------------------------------------------------------


@contextlib.contextmanager
def _making(name, comm, token, tag=None):
    """What is called within belongs to this call, over the group that this gives; with a tag it is
    a message."""
    if token is not _NONE:
        raise RuntimeError(
            f"oriel.mpi.{name}: there are no tokens, as in mpi4jax from 0.8 on: calls are in the "
            "order of the program; leave token= out, and take the result alone"
        )
    if not _world.is_initialized():
        _world.init(distributed=False)
    group = _primitive.find_axes(f"mpi.{name}", _group_of(name, comm))
    sequence = _SEQUENCE if tag is None else _tag_of(name, tag, group)
    with _calls.making(_calls.Made(_calls.place(f"mpi.{name}"), sequence, sequence=True)):
        yield group


def _tag_of(name, tag, group):
    """As a text; without one, what is sent without one."""
    number = _primitive.check_integer(f"mpi.{name}", "tag", tag)
    text = f"mpi {0 if number == ANY_TAG else number}"
    return text if group is None else f"{text} in {group!r}"


def _mpi():
    """mpi4py, where the program has imported it."""
    return sys.modules.get("mpi4py.MPI")


def _name_of(name, op):
    if isinstance(op, str) and op in _NAMES:
        return op
    mpi = _mpi()
    if mpi is not None and isinstance(op, mpi.Op):
        for known in _NAMES:
            if op == getattr(mpi, known):
                return known
    raise ValueError(f"oriel.mpi.{name}: op must be one of {', '.join(_NAMES)}; got {op!r}")


def _group_of(name, comm):
    """As calls take it in the place of axis_name."""
    if _groups.over_ranks(comm):
        return comm
    mpi = _mpi()
    if mpi is None or not isinstance(comm, mpi.Intracomm):
        raise TypeError(
            f"oriel.mpi.{name}: comm must be an oriel.group, a communicator of mpi4py or None, got "
            f"{comm!r}"
        )
    world = mpi.COMM_WORLD
    here, there = (_world.rank(), _world.size()), (world.Get_rank(), world.Get_size())
    if here != there:
        raise ValueError(
            f"oriel.mpi.{name}: this is rank {here[0]} of {here[1]} in oriel's world, but rank "
            f"{there[0]} of {there[1]} in MPI's: comm must be an oriel.group or None"
        )
    members = range(comm.Get_size())
    ranks = mpi.Group.Translate_ranks(comm.Get_group(), list(members), world.Get_group())
    return None if ranks == list(range(there[1])) else _groups.group(ranks)


def _source_of(name, source, group):
    source = _primitive.check_integer(f"mpi.{name}", "source", source)
    ranks = _groups.ranks_of(group)
    from_any = source in (ANY_SOURCE, getattr(_mpi(), "ANY_SOURCE", ANY_SOURCE))
    if from_any and len(ranks) == 2:
        return 1 - _groups.index_in(group)
    if from_any:
        raise ValueError(
            f"oriel.mpi.{name}: source must be a rank, got ANY_SOURCE: whose message it is follows "
            "from the program, in which order messages come does not"
        )
    return source


def _tell(status, source, tag):
    if status is not None:
        status.Set_source(source)
        status.Set_tag(max(operator.index(tag), 0))


def _with_blocks(name, x, group):
    n = len(_groups.ranks_of(group))
    if jnp.shape(x)[:1] != (n,):
        raise ValueError(
            f"oriel.mpi: {name} input must have shape (nproc, ...), where nproc is {n}; got "
            f"{jnp.shape(x)}"
        )
    return x


# ---- reductions ------------------------------------------------------------------------

_LOGICAL = {LAND: "and", LOR: "or", LXOR: "xor"}
_BITWISE = {BAND: "and", BOR: "or", BXOR: "xor"}


def _reduced(name, x, op, reduce):
    known = _name_of(name, op)
    if known not in _LOGICAL and known not in _BITWISE:
        return reduce(x, known.lower()).astype(x.dtype)
    if not jnp.issubdtype(x.dtype, jnp.integer) and x.dtype != bool:
        raise TypeError(f"oriel.mpi.{name}: {known} takes integers and booleans, got {x.dtype}")
    if known in _LOGICAL:
        return reduce(x != 0, _LOGICAL[known]).astype(x.dtype)
    return reduce(x, _BITWISE[known])


_sum = _primitive.Operation("all_reduce", kind="mpi_")


def _sum_of(x, axes, here=False):
    """`here`: the transpose, which is each rank's own cotangent; its transpose is the sum."""
    return _sum.bind(x, axes=axes, here=here)


def _sum_type(aval, *, axes, here):
    return aval.update(weak_type=False), set()


def _sum_transpose(cotangent, x, *, axes, here):
    return (_sum_of(cotangent, axes, not here),)


def _sum_batch(axis_data, args, dims, *, axes, here):
    return _sum_of(args[0], axes, here), dims[0]


def _sum_lower(ctx, x, *, axes, here):
    if here:
        return [x]
    return _all_reduce.lower(ctx, [x], axes=axes, op="sum", how=("auto", None), invariant=True)


_sum.define(_sum_type, _sum_batch, _sum_lower, linear=_sum_transpose)


# ---- messages without derivatives --------------------------------------------------------


def _constant(x, name):
    """`x`, of which no derivative can be taken: what has no result cannot send one back."""

    @jax.custom_jvp
    def same(x):
        return x

    @same.defjvp
    def refuse(primals, tangents):
        raise NotImplementedError(
            f"oriel.mpi.{name} has no derivative, as in mpi4jax; sendrecv has, and so have "
            "oriel.send and oriel.recv"
        )

    return same(x) if isinstance(x, jax.core.Tracer) else x
