"""Terms: what random functions are made of.

A term maps an array to one of the same shape, element by element, and knows two ways to do
so: with JAX on this rank, calling oriel, and with NumPy for all ranks at once, one after the
other along the first dimension. All numbers are whole, so sums in any order are exact."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oriel
from jax import lax

LIMIT = 1 << 21  # of what a float32 holds exactly, with room for a sum of eight
MODULUS = 251
PRINTED = "rank {}, of which only this one prints: {{}}"


class TooLargeError(Exception):
    """A drawn term leaves the whole numbers that a float32 holds."""


@dataclasses.dataclass
class Here:
    """Where a term is evaluated: on which rank, over which mesh; `odd` is (leaf, how) where
    this rank's program has a call that the others' have not."""

    rank: int
    shape: tuple  # of the mesh; None: the world
    owners: list  # by position in the mesh, the rank that Python sees there
    odd: tuple = (None, None)
    highest: bool = False  # whether NumPy computes the largest numbers that can be

    def rounded(self, values):
        """All terms but this grow with their operand."""
        return np.full_like(values, MODULUS - 1) if self.highest else np.mod(values, MODULUS)

    @property
    def size(self):
        return len(self.owners)

    def groups(self, axes):
        """Positions of the members of each group over `axes`."""
        positions = np.arange(self.size).reshape(self.shape or (self.size,))
        if axes == ("x",) and positions.ndim == 2:
            return positions.T
        if axes == ("y",):
            return positions
        return positions.reshape(1, -1)


# ---- places from which oriel is called ------------------------------------------


def by_helper(operation, *arguments, **keywords):
    return operation(*arguments, **keywords)


def make_place(module, line):
    """A function that calls from a line and a module of its own."""
    text = "\n" * line + "def call(operation, *a, **k): return operation(*a, **k)\n"
    scope = {"__name__": module}
    exec(compile(text, f"/nowhere/{module}.py", "exec"), scope)
    return scope["call"]


PLACES = [by_helper, *(make_place(f"person_{i % 3}", 3 + i) for i in range(5))]


# ---- calls -----------------------------------------------------------------------

REDUCTIONS = ("sum", "max", "min")
LINEAR = ("sum", "gather", "tiled", "scatter", "exchange", "broadcast", "permute", "some", "ragged")
KINDS = (*LINEAR, "max", "min", "barrier")


def weigh(rows):
    return sum((j + 1) * rows[j] for j in range(len(rows)))


def fan(v, size):
    return jnp.stack([v * (j + 1) for j in range(size)])


def pairs_of(kind, number, size):
    pairs = [(i, (i + number) % size) for i in range(size)]
    return pairs[:1] if kind == "some" else pairs


def ragged(call, v, axes, size, me):
    """Each member's array, as one row, to all. Each row is sent once: of one that is sent
    twice, the derivative is that of one of the two."""
    ones, each = jnp.ones(size, jnp.int32), jnp.arange(size)
    out = jnp.stack([v.reshape(-1)] * size)
    into = jnp.zeros_like(out)
    rows = call(oriel.ragged_all_to_all, out, into, each, ones, me * ones, ones, axis_name=axes)
    return weigh(rows).reshape(v.shape)


def by_jax(kind, number, axes, size, call, v):
    """One call of oriel's, with the array's shape as result; `size` take part."""
    if kind in REDUCTIONS:
        return call(oriel.all_reduce, v, axes, kind)
    if kind == "gather":
        return weigh(call(oriel.all_gather, v, axes))
    if kind == "tiled":
        rows = call(oriel.all_gather, v[None], axes, tiled=True)
        return weigh(rows)
    if kind == "scatter":
        return call(oriel.reduce_scatter, fan(v, size), axes)
    if kind == "exchange":
        return weigh(call(oriel.all_to_all, fan(v, size), axes, 0, 0))
    if kind == "broadcast":
        return call(oriel.broadcast, v, axes, root=number % size)
    if kind in ("permute", "some"):
        return call(oriel.permute, v, axes, pairs_of(kind, number % size, size))
    if kind == "barrier":
        return call(oriel.barrier, v, axes)
    me = oriel.rank() if axes is None else lax.axis_index(axes)
    return ragged(call, v, axes, size, me)


def by_numpy(kind, number, members):
    """The same for the members of one group, one after the other."""
    size = len(members)
    ones = np.ones_like(members)
    places = np.arange(1, size + 1).reshape(-1, *(1,) * (members.ndim - 1))
    if kind in REDUCTIONS:
        return ones * getattr(members, kind)(axis=0)
    if kind in ("gather", "tiled", "ragged"):
        return ones * weigh(members)
    if kind == "scatter":
        return places * members.sum(0)
    if kind == "exchange":
        return places * weigh(members)
    if kind == "broadcast":
        return ones * members[number % size]
    if kind == "barrier":
        return members
    result = np.zeros_like(members)
    for source, to in pairs_of(kind, number % size, size):
        result[to] = members[source]
    return result


# ---- terms -----------------------------------------------------------------------


class Term:
    """`parts` are the terms that it is made of; `uses`, how often each is lowered."""

    uses = 1

    def __init__(self, *parts):
        self.parts = parts

    def __repr__(self):
        """For whoever looks at a seed that failed."""
        told = {name: value for name, value in vars(self).items() if value is not None}
        inner = ", ".join(map(repr, told.pop("parts")))
        words = ", ".join(f"{name}={value}" for name, value in told.items())
        return f"{type(self).__name__}({inner}{'; ' if inner and words else ''}{words})"

    def leaves(self):
        return [leaf for part in self.parts for leaf in part.leaves()]

    def lowered(self):
        """How many calls the program has."""
        return self.uses * sum(part.lowered() for part in self.parts)

    def numpy(self, here, values, k):
        result = self.compute(here, values, k)
        if np.abs(result).max() > LIMIT:
            raise TooLargeError
        return result


class Leaf(Term):
    """One call. `rounds`: its result is taken modulo a number, which has no derivative."""

    def __init__(self, kind, number, axes, place, dtype=None, rounds=True, tag=None):
        super().__init__()
        self.kind, self.number, self.axes, self.place = kind, number, axes, place
        self.dtype, self.rounds, self.tag = dtype, rounds, tag

    def leaves(self):
        return [self]

    def lowered(self):
        return 1

    def call(self, operation, *arguments, **keywords):
        if self.tag is not None:
            keywords["tag"] = self.tag
        return PLACES[self.place](operation, *arguments, **keywords)

    def one(self, here, v, kind, number):
        size = len(here.groups(self.axes)[0])
        y = by_jax(kind, number, self.axes, size, self.call, v)
        # Results of all_reduce do not vary over the axes, and loops want one type.
        return y if self.axes is None else y + (0 * lax.axis_index(("x", "y"))).astype(y.dtype)

    def jax(self, here, v, k):
        how = here.odd[1] if here.odd[0] is self else None
        dtype = self.dtype or v.dtype
        if how == "dtype":
            dtype = jnp.int32 if dtype != jnp.int32 else jnp.float32
        y = self.differently(here, v.astype(dtype), how).astype(v.dtype)
        return jnp.mod(y, MODULUS) if self.rounds else y

    def differently(self, here, v, how):
        kind, number = self.kind, self.number
        if how == "less":
            return v
        if how == "shape":
            return self.one(here, jnp.stack([v, v]), kind, number)[0]
        if how == "kind":
            kind = "min" if kind == "max" else "max"
        if how == "number":
            number += 1
        if how == "extra":
            v = self.one(here, v, kind, number)
        return self.one(here, v, kind, number)

    def compute(self, here, values, k):
        result = np.empty_like(values)
        for group in here.groups(self.axes):
            result[group] = by_numpy(self.kind, self.number, values[group])
        if np.abs(result).max() > LIMIT:
            raise TooLargeError
        return here.rounded(result) if self.rounds else result


class Then(Term):
    def jax(self, here, v, k):
        for part in self.parts:
            v = part.jax(here, v, k)
        return v

    def compute(self, here, values, k):
        for part in self.parts:
            values = part.numpy(here, values, k)
        return values


class Plus(Term):
    """Independent calls, which XLA starts in any order."""

    def jax(self, here, v, k):
        return sum((i + 1) * part.jax(here, v + i, k) for i, part in enumerate(self.parts))

    def compute(self, here, values, k):
        parts = enumerate(self.parts)
        return sum((i + 1) * part.numpy(here, values + i, k) for i, part in parts)


class Once(Term):
    """What changes no number: the part, inside of something."""

    def __init__(self, part, how):
        super().__init__(part)
        self.how = how

    def compute(self, here, values, k):
        return self.parts[0].numpy(here, values, k)

    def jax(self, here, v, k):
        def function(v):
            return self.parts[0].jax(here, v, k)

        return WRAPPERS[self.how](function, v, k)


def by_vmap(function, v, k):
    return jax.vmap(function)(v) if v.ndim else function(v)


def by_vmap_last(function, v, k):
    return jax.vmap(function, in_axes=-1, out_axes=-1)(v) if v.ndim else function(v)


WRAPPERS = {
    "plain": lambda function, v, k: function(v),
    "jit": lambda function, v, k: jax.jit(function)(v),
    "remat": lambda function, v, k: jax.checkpoint(function)(v),
    "vmap": by_vmap,
    "vmap_last": by_vmap_last,
    "scan": lambda function, v, k: lax.scan(lambda c, _: (function(c), None), v, length=1)[0],
    "cond": lambda function, v, k: lax.cond(k >= 0, function, lambda v: v, v),
    "named": lambda function, v, k: jax.named_call(function, name="part")(v),
}


class Differently(Once):
    """The part inside of something else on each rank; `how` has one for each."""

    def jax(self, here, v, k):
        def function(v):
            return self.parts[0].jax(here, v, k)

        return WRAPPERS[self.how[here.rank % len(self.how)]](function, v, k)


class Twice(Term):
    """One function, used twice."""

    uses = 2

    def __init__(self, part, how, nested=True):
        super().__init__(part)
        self.how, self.nested = how, nested

    def jax(self, here, v, k):
        def plain(v, k):
            return self.parts[0].jax(here, v, k)

        function = MAKERS[self.how](plain)
        if self.nested:
            return function(function(v, k), k)
        return function(v, k) + 2 * function(v + 1, k)

    def compute(self, here, values, k):
        part = self.parts[0]
        if self.nested:
            return part.numpy(here, part.numpy(here, values, k), k)
        return part.numpy(here, values, k) + 2 * part.numpy(here, values + 1, k)


def with_own_jvp(plain):
    """A rule that calls by itself."""
    function = jax.custom_jvp(plain)

    @function.defjvp
    def rule(primals, tangents):
        v, k = primals
        return jax.jvp(lambda w: plain(w, k), (v,), (tangents[0],))

    return function


def with_vjp(plain):
    function = jax.custom_vjp(plain)

    def forward(v, k):
        return plain(v, k), (v, k)

    def backward(kept, cotangent):
        v, k = kept
        return jax.vjp(lambda w: plain(w, k), v)[1](cotangent)[0], None

    function.defvjp(forward, backward)
    return function


def with_scan(plain):
    """The same body in two loops."""

    def body(carry, _):
        v, k = carry
        return (plain(v, k), k), None

    def function(v, k):
        return lax.scan(body, (v, k), length=1)[0][0]

    return function


MAKERS = {
    "plain": lambda plain: plain,
    "jit": jax.jit,
    "remat": jax.checkpoint,
    "scan": with_scan,
    "custom_jvp": with_own_jvp,
    "custom_vjp": with_vjp,
    "jit_of_remat": lambda plain: jax.jit(jax.checkpoint(plain)),
    "remat_of_jit": lambda plain: jax.checkpoint(jax.jit(plain)),
}


class Loop(Term):
    """`times` rounds, or (k + times) % 3 where a while_loop counts them."""

    def __init__(self, part, how, times):
        super().__init__(part)
        self.how, self.times = how, times

    def jax(self, here, v, k):
        def step(v):
            return self.parts[0].jax(here, v, k)

        if self.how == "scan":
            return lax.scan(lambda v, x: (step(v + x), None), v, self.added(v.dtype))[0]
        if self.how == "fori":
            return lax.fori_loop(0, self.times, lambda i, v: step(v + (i % 3).astype(v.dtype)), v)
        count = (k + self.times) % 3
        done = lax.while_loop(
            lambda c: c[0] < count,
            lambda c: (c[0] + 1, step(c[1] + (c[0] % 3).astype(v.dtype))),
            (jnp.zeros_like(count), v),
        )
        return done[1]

    def added(self, dtype):
        return jnp.arange(self.times).astype(dtype) % 3

    def compute(self, here, values, k):
        times = (k + self.times) % 3 if self.how == "while" else self.times
        for i in range(times):
            values = self.parts[0].numpy(here, values + i % 3, k)
        return values


class Invariant(Term):
    """A loop whose call has an operand that one rank's program does not change from round to
    round, and the others' do, as far as XLA can see."""

    def __init__(self, part, rank):
        super().__init__(part)
        self.rank = rank

    def jax(self, here, v, k):
        def step(total, _):
            operand = v if here.rank == self.rank else v + total - total
            return jnp.mod(total + self.parts[0].jax(here, operand, k), MODULUS), None

        return lax.scan(step, v, length=3)[0]

    def compute(self, here, values, k):
        total = values
        for _ in range(3):
            total = here.rounded(total + self.parts[0].numpy(here, values, k))
        return total


class Choice(Term):
    """A branch that all ranks take alike."""

    def jax(self, here, v, k):
        branches = [lambda v, part=part: part.jax(here, v, k) for part in self.parts]
        if len(branches) == 2:
            return lax.cond(k % 2 == 0, *branches, v)
        return lax.switch(k % len(branches), branches, v)

    def compute(self, here, values, k):
        return self.parts[k % len(self.parts)].numpy(here, values, k)


class Gradient(Term):
    """Of half the sum of squares of the part, which is linear; its calls are made again on
    the way back where it is checkpointed."""

    uses = 3

    def __init__(self, part, remat):
        super().__init__(part)
        self.remat = remat

    def jax(self, here, v, k):
        def function(w):
            return self.parts[0].jax(here, w, k)

        function = jax.checkpoint(function) if self.remat else function
        gradient = jax.grad(lambda w: (function(w) ** 2).sum() / 2)(v)
        return jnp.mod(gradient, MODULUS)

    def compute(self, here, values, k):
        """Elements do not mix, and half a difference is the derivative of a square."""
        part, gradient = self.parts[0], np.empty_like(values)
        for position in range(here.size):
            there = np.zeros_like(values)
            there[position] = 1
            ends = [(part.numpy(here, values + s * there, k) ** 2).sum(0) / 2 for s in (1, -1)]
            gradient[position] = (ends[0] - ends[1]) / 2
            if max(np.abs(end).max() for end in ends) > LIMIT:
                raise TooLargeError
        return here.rounded(gradient)


class Own(Term):
    """Something of each rank's own before the part: a number, a print, code."""

    def __init__(self, part, how, number):
        super().__init__(part)
        self.how, self.number = how, number

    def constant(self, rank):
        return (rank * 3 + self.number) % 7 if self.how == "number" else 0

    def jax(self, here, v, k):
        mine = here.rank % 2 == self.number % 2
        if self.how == "number":
            v = v + self.constant(here.rank)
        elif self.how == "print" and mine:
            jax.debug.print(PRINTED.format(here.rank), k)  # not v, of which vmap has many
        elif self.how == "code" and mine:
            v = jnp.flip(jnp.flip(v * 2)) / 2
        elif self.how == "loop" and mine:
            v = lax.fori_loop(0, self.number + 1, lambda _, w: jnp.sin(w) * 0 + v, v)
        elif self.how == "jit" and mine:
            v = jax.jit(lambda w: w + 1)(v) - 1
        return self.parts[0].jax(here, v, k)

    def compute(self, here, values, k):
        added = np.array([self.constant(rank) for rank in here.owners], values.dtype)
        added = added.reshape(-1, *(1,) * (values.ndim - 1))
        return self.parts[0].numpy(here, values + added, k)
