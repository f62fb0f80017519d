"""send, recv and sendrecv: messages from one rank to another, each in a program of its own.

A message is a call of a group of two, whose first member sends. The two ends stand at different
places, so they belong together by their ranks and a tag, and in the order of the program.

On GPUs it is a permutation of the two ranks, and each waits for the other on its stream."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad

from oriel import _calls, _world
from oriel._collectives import exchange as _exchange
from oriel._collectives import groups as _groups
from oriel._collectives import primitive as _primitive
from oriel._collectives.groups import Group
from oriel._collectives.primitive import Operation
from oriel._memory import access as _access

_send = Operation("send", operation="message")
_recv = Operation("recv", operation="message")
_sendrecv = Operation("sendrecv", operation="message")


def send(x, dest, *, group=None, tag="message", effect=False):
    """Sends `x` to the rank `dest`, which receives it; gives `x`, once it is on its way.

    It waits for nobody, what the receiver does not take at once is kept for it; but on GPUs both
    wait for each other. Messages from one rank to another with one `tag` are received in the order
    in which they are sent. `x` may be a pytree; `dest` is an index in `group`, where that is given.
    Only in a program of one device with one device per process, outside shard_map.

    Of what is made of the result, the derivative is that of the identity and what the receiver
    makes of the message: its cotangent comes back as a message.
    """
    pair = _pair("send", "dest", dest, group, sends=True)
    with _calls.message("send", group, tag, effect):
        x = _access.arrays_of(x)
        return jax.tree.map(lambda leaf: _after(leaf, _send_leaf("send", leaf, pair)), x)


def recv(like, source, *, group=None, tag="message", effect=False):
    """What the rank `source` sends, of the shapes and dtypes of `like`, whose values are not read.

    `like` may be a pytree, of jax.ShapeDtypeStruct too. Other arguments are as in send. A
    derivative with respect to `like` is zero, and sends the cotangent of the result to `source`: it
    must be asked for where `source` asks for one with respect to what it has sent.
    """
    pair = _pair("recv", "source", source, group, sends=False)
    with _calls.message("recv", group, tag, effect):
        like = _access.arrays_of(like)
        return jax.tree.map(lambda leaf: _recv_leaf("recv", leaf, pair), like)


def sendrecv(x, like, source, dest, *, group=None, tag="message", effect=False):
    """Sends `x` to the rank `dest` and gives what `source` sends, of the shapes of `like`.

    `source` and `dest` may be one rank or two; where both are this one, the result is `x`. Both
    messages begin at once, and the result is there when both are done. Other arguments are as in
    send and recv. Its derivative with respect to `x` is the way back: all that take part ask for
    it, or none.
    """
    with _calls.message("sendrecv", group, tag, effect):
        return exchange(x, like, source, dest, group, None)


def exchange(x, like, source, dest, group, recvtag):
    """sendrecv, whose receiver may have a tag of its own."""
    x, like = _access.arrays_of((x, like))
    if _is_own(source, group) and _is_own(dest, group):
        return jax.tree.map(_check_alike, x, like)
    to = _pair("sendrecv", "dest", dest, group, sends=True)
    by = _pair("sendrecv", "source", source, group, sends=False)
    sends = [_primitive.check_array("sendrecv", leaf) for leaf in jax.tree.leaves(x)]
    wanted, structure = jax.tree.flatten(like)
    wanted = [_primitive.check_array("sendrecv", _array(leaf), "like") for leaf in wanted]
    made = _calls.present()
    made = made._replace(recvtag=recvtag or made.tag)
    return jax.tree.unflatten(structure, _exchange_leaves(made, sends, wanted, to, by))


def _exchange_leaves(made, sends, wanted, to, by):
    """All are sent before the first is waited for: the last of those and the first of these are one
    call."""
    if _permutes():
        return _exchange_in_turn(made, sends, wanted, to, by)
    both = min(len(sends), len(wanted), 1)
    before, last = sends[: len(sends) - both], sends[len(sends) - both :]
    with _calls.making(made):
        sent = [_send_leaf("sendrecv", leaf, to) for leaf in before]
    # What is received depends on what is sent: so a derivative goes by both.
    first = [_after(like, *sent) for like in wanted[:both]]
    with _calls.making(made._replace(tag=_calls.nth(made.tag, len(before)))):
        got = [_sendrecv.bind(x, like, axes=to, source=by) for x, like in zip(last, first)]
    sent += [_element(x) for x in last if isinstance(x, jax.core.Tracer)]
    with _calls.making(made._replace(tag=made.recvtag), both):
        return got + [_recv_leaf("sendrecv", _after(like, *sent), by) for like in wanted[both:]]


def _exchange_in_turn(made, sends, wanted, to, by):
    """The same on GPUs, where each rank waits for the other: array by array."""
    got = []
    for i in range(max(len(sends), len(wanted))):
        tag, recvtag = _calls.nth(made.tag, i), _calls.nth(made.recvtag, i)
        with _calls.making(made._replace(tag=tag, recvtag=recvtag)):
            if i < min(len(sends), len(wanted)):
                got.append(_sendrecv.bind(sends[i], wanted[i], axes=to, source=by))
            elif i < len(sends):
                _send_leaf("sendrecv", sends[i], to)
        if len(got) == i < len(wanted):
            with _calls.making(made._replace(tag=recvtag)):
                got.append(_recv_leaf("sendrecv", wanted[i], by))
    return got


def _element(x):
    return jnp.ravel(x)[0] if jnp.size(x) else jnp.zeros((), x.dtype)


def _is_own(place, group):
    return _groups.over_ranks(group) and place == _groups.index_in(group)


def _check_alike(x, like):
    if jnp.shape(x) != jnp.shape(like):
        raise ValueError(
            f"oriel.sendrecv: like has shape {jnp.shape(like)}, but this rank sends shape "
            f"{jnp.shape(x)} to itself"
        )
    return x


def _pair(operation, role, place, group, sends):
    """The two ranks of a message, as a group: the first sends."""
    group = _primitive.find_axes(operation, _groups.chosen(operation, None, group))
    place = _primitive.check_integer(operation, role, place)
    ranks, own = _groups.ranks_of(group), _groups.index_in(group)
    if not 0 <= place < len(ranks):
        raise ValueError(f"oriel.{operation}: {role} is {place}, but there are {len(ranks)} ranks")
    if place == own:
        raise ValueError(f"oriel.{operation}: {role} is {place}, which is this rank itself")
    return Group((ranks[own], ranks[place]) if sends else (ranks[place], ranks[own]))


def _array(like):
    if isinstance(like, jax.ShapeDtypeStruct):
        return jnp.zeros(like.shape, like.dtype)
    return like


def _send_leaf(operation, x, pair):
    return _send.bind(_primitive.check_array(operation, x), axes=pair)


def _recv_leaf(operation, like, pair):
    return _recv.bind(_primitive.check_array(operation, _array(like), "like"), axes=pair)


def _after(x, *others):
    """`x`, on whose derivative that of the others depends; mapped by vmap if one of them is. Where
    nothing is traced they have been made anyway."""
    if not any(isinstance(y, jax.core.Tracer) for y in (x, *others)):
        return x
    for other in others:
        real = jnp.iscomplexobj(other) and not jnp.iscomplexobj(x)
        other = (lax.real(other) if real else other).astype(jnp.asarray(x).dtype)
        x = _select(x, jnp.broadcast_to(other, jnp.shape(x)))
    return x


def _select(x, never):
    return lax.select(jnp.zeros(jnp.shape(x), bool), never, jnp.asarray(x))


def _zeros(x):
    """Zeros that depend on `x`, as far as JAX sees."""
    return _select(jnp.zeros_like(x), x)


# ---- send: a zero, which stands for the call ------------------------------------------


def _send_type(aval, *, axes):
    return _primitive.result_type("send", aval, axes, drop=aval.ndim)


def _back(axes):
    return Group(axes.ranks[::-1])


def _send_transpose(cotangent, x, *, axes):
    return (_recv.bind(jnp.broadcast_to(_zeros(cotangent), x.aval.shape), axes=_back(axes)),)


def _send_batch(axis_data, args, dims, *, axes):
    sent = _send.bind(args[0], axes=axes)
    if dims[0] is None:
        return sent, None
    return jnp.broadcast_to(sent, (axis_data.size,)), 0  # what depends on it is mapped, too


def _send_lower(ctx, x, *, axes):
    if _permutes():
        _permuted(ctx, x, axes, _calls.present().tag)
        return _primitive.lower_here(ctx, lambda v: jnp.zeros((), v.dtype), x)
    return _send.call(ctx, [x], _send.groups(ctx, axes))


# ---- recv ------------------------------------------------------------------------------


def _recv_type(aval, *, axes):
    return _primitive.result_type("recv", aval, axes)


def _recv_transpose(cotangent, like, *, axes):
    return (_after(_zeros(cotangent), _send.bind(cotangent, axes=_back(axes))),)


def _recv_batch(axis_data, args, dims, *, axes):
    y = _recv.bind(args[0], axes=axes)
    return y, None if dims[0] is None else 0


def _recv_lower(ctx, like, *, axes):
    if _permutes():
        return _permuted(ctx, like, axes, _calls.present().tag)
    groups = _recv.groups(ctx, axes)
    return _recv.call(ctx.replace(avals_in=[]), [], groups)


# ---- sendrecv: one call of both, which has the tag of what it receives besides -----------


def _sendrecv_type(x, like, *, axes, source):
    return _primitive.result_type("sendrecv", like, axes)


def _receiving(made):
    """Of a sendrecv, the call by which the other one receives; that of the way back."""
    return made._replace(tag=made.recvtag, recvtag=made.tag)


def _sendrecv_jvp(primals, tangents, *, axes, source):
    y = _sendrecv.bind(*primals, axes=axes, source=source)
    dx, dlike = tangents
    moves = not isinstance(dx, ad.Zero), jnp.issubdtype(y.dtype, jnp.inexact)
    made = _calls.present().derived("tangent")
    if all(moves):
        dlike = ad.instantiate_zeros(dlike)
        with _calls.making(made):
            return y, _sendrecv.bind(dx, dlike, axes=axes, source=source)
    if moves[0]:
        with _calls.making(made):
            _send.bind(dx, axes=axes)
    elif not isinstance(dlike, ad.Zero):
        with _calls.making(_receiving(made)):
            return y, _recv.bind(dlike, axes=source)
    return y, ad.Zero.from_primal_value(y)


def _sendrecv_transpose(cotangent, x, like, *, axes, source):
    if isinstance(cotangent, ad.Zero):
        return cotangent, None
    back = {"axes": _back(source)}
    with _calls.making(_receiving(_calls.present())):
        if ad.is_undefined_primal(x):
            wanted = jnp.zeros(x.aval.shape, x.aval.dtype)
            made = _sendrecv.bind(cotangent, wanted, source=_back(axes), **back)
            results = made, None
        else:
            made = _send.bind(cotangent, **back)
            results = None, None
    if ad.is_undefined_primal(like):
        zeros = jnp.zeros(like.aval.shape, like.aval.dtype)
        results = results[0], _after(zeros, _element(made))
    return results


def _sendrecv_batch(axis_data, args, dims, *, axes, source):
    x, like = args
    mapped = any(dim is not None for dim in dims)
    if mapped and dims[1] is None:
        like = jnp.broadcast_to(like, (axis_data.size, *like.shape))
    return _sendrecv.bind(x, like, axes=axes, source=source), 0 if mapped else None


def _sendrecv_lower(ctx, x, like, *, axes, source):
    if _permutes():
        return _lower_both(ctx, x, like, axes, source)
    groups, sources = (_sendrecv.groups(ctx, pair) for pair in (axes, source))
    one = ctx.replace(avals_in=ctx.avals_in[:1])
    return _sendrecv.call(one, [x], groups, from_groups=sources)


# ---- on GPUs: permutations of the two ranks -----------------------------------------------

PERMUTES = False  # tests set it: messages of CPUs go the same way


def _permutes():
    return PERMUTES or _world.current().platform == "gpu"


def _permuted(ctx, x, pair, tag, back=None):
    """A message over the pair, and one with the tag `back` the other way. What none comes to is
    zeros."""
    aval = ctx.avals_in[0]
    if aval.size == 0:
        return [x]
    ranks = tuple(sorted(pair.ranks))
    ends = tuple(map(ranks.index, pair.ranks))
    if back not in (None, tag):  # both ranks name it alike
        tag = " and ".join((tag, back) if ends == (0, 1) else (back, tag))
    pairs = (ends,) if back is None else ((0, 1), (1, 0))
    one = ctx.replace(avals_in=[aval], avals_out=[aval])
    with _calls.making(_calls.present()._replace(tag=tag)), _calls.over(Group(ranks)):
        return _exchange.lower_pairs(one, x, ranks, pairs)


def _lower_both(ctx, x, like, to, by):
    """With one other rank one call; with two, the ranks of each call say which is first: so that
    ranks which pass something round in a circle do not wait for each other."""
    made = _calls.present()
    if set(to.ranks) == set(by.ranks):
        _check_equal(*ctx.avals_in)
        return _permuted(ctx, x, to, made.tag, made.recvtag)
    sends = functools.partial(_permuted, ctx, x, to, made.tag)
    receives = functools.partial(
        _permuted, ctx.replace(avals_in=ctx.avals_in[1:]), like, by, made.recvtag
    )
    if sorted(to.ranks) < sorted(by.ranks):
        sends()
        return receives()
    received = receives()
    sends()
    return received


def _check_equal(x, like):
    if (x.shape, x.dtype) != (like.shape, like.dtype):
        raise ValueError(
            f"oriel.sendrecv: on GPUs what goes to a rank and what comes from it have one shape and "
            f"dtype; x is {x.dtype}{list(x.shape)}, like is {like.dtype}{list(like.shape)}: use send "
            "and recv, the rank that sends first being one that the other receives from first"
        )


_send.define(_send_type, _send_batch, _send_lower, linear=_send_transpose)
_recv.define(_recv_type, _recv_batch, _recv_lower, linear=_recv_transpose)
_sendrecv.define(
    _sendrecv_type,
    _sendrecv_batch,
    _sendrecv_lower,
    jvp=_sendrecv_jvp,
    transpose=_sendrecv_transpose,
)
