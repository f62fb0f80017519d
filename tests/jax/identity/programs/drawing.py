"""Draws functions from a seed that all processes share, and makes them with JAX."""

import dataclasses
import random

import jax
import numpy as np
from common import spread
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P
from terms import (
    KINDS,
    LINEAR,
    MAKERS,
    WRAPPERS,
    Choice,
    Differently,
    Gradient,
    Here,
    Invariant,
    Leaf,
    Loop,
    Once,
    Own,
    Plus,
    Then,
    TooLargeError,
    Twice,
)

MOST_CALLS = 16  # of a program, as lowered
SHAPES = [(1,), (3,), (2, 3), (4, 1), (2, 2, 2), (33,), (5, 7), (1200,), (64, 65)]
OPERAND = 10  # operands are whole numbers below


def shape_of_mesh(rng, ranks):
    """Two axes, "x" and "y"."""
    columns = rng.choice([d for d in (1, 2) if ranks % d == 0])
    return (ranks // columns, columns)


# ---- terms -----------------------------------------------------------------------


class Pen:
    """Draws the terms of one function; `shape` is None for world calls."""

    def __init__(self, rng, shape, size, tags=None):
        self.rng, self.shape, self.size, self.tags = rng, shape, size, tags
        self.places = rng.sample(range(6), rng.choice([1, 2, 3]))

    def axes(self):
        if self.shape is None:
            return None
        wide = [("x",), ("x", "y")] + [("y",)] * (self.shape[1] > 1)
        return self.rng.choice(wide)

    def leaf(self, smooth=False):
        kinds = (*LINEAR, "barrier") if smooth else KINDS
        dtype = None if smooth else self.rng.choice([None, None, np.int32])
        return Leaf(
            self.rng.choice(kinds),
            self.rng.randrange(self.size),
            self.axes(),
            self.rng.choice(self.places),
            dtype,
            rounds=not smooth,
        )

    def anchor(self):
        """A call that each execution makes first."""
        axes = None if self.shape is None else ("x", "y")
        return Leaf("sum", 0, axes, self.rng.choice(self.places))

    def term(self, depth, smooth=False):
        if depth == 0:
            return self.leaf(smooth)
        kinds = ["then", "plus", "once", "twice", "own", "choice", "loop"]
        if not smooth:
            kinds += ["twice", "gradient", "invariant"]
        kind = self.rng.choice(kinds)
        return getattr(self, kind)(depth - 1, smooth)

    def parts(self, depth, smooth, least=2):
        return [self.term(depth, smooth) for _ in range(self.rng.choice([least, least, 3]))]

    def then(self, depth, smooth):
        return Then(*self.parts(depth, smooth))

    def plus(self, depth, smooth):
        return Plus(*self.parts(depth, smooth))

    def choice(self, depth, smooth):
        return Choice(*self.parts(depth, smooth))

    def once(self, depth, smooth):
        return Once(self.term(depth, smooth), self.rng.choice(list(WRAPPERS)))

    def twice(self, depth, smooth):
        return Twice(
            self.term(depth, smooth), self.rng.choice(list(MAKERS)), self.rng.random() < 0.5
        )

    def own(self, depth, smooth):
        how = self.rng.choice(["number", "number", "print", "code", "loop", "jit"])
        return Own(self.term(depth, smooth), how, self.rng.randrange(5))

    def loop(self, depth, smooth):
        hows = ["scan", "fori"] if smooth else ["scan", "fori", "while"]
        return Loop(self.term(depth, smooth), self.rng.choice(hows), self.rng.choice([1, 2, 3]))

    def gradient(self, depth, smooth):
        return Gradient(self.term(min(depth, 1), smooth=True), self.rng.random() < 0.7)

    def invariant(self, depth, smooth):
        return Invariant(self.leaf(), self.rng.randrange(self.size))

    def by_tag(self):
        """World calls with tags of their own, or one tag for several in a row."""
        leaves = [self.leaf() for _ in range(self.rng.choice([2, 3, 4]))]
        if self.rng.random() < 0.4:
            for leaf in leaves:
                leaf.tag = self.rng.choice(["a", "b"])
            return Then(*leaves)
        for i, leaf in enumerate(leaves):
            leaf.tag = f"tag {i}"
        hows = [how for how in WRAPPERS if not how.startswith("vmap")]  # that is another call
        return Then(*(Differently(leaf, self.rng.choices(hows, k=3)) for leaf in leaves))


def draw_term(rng, shape, size, tagged, depth):
    """A term of not too many calls whose numbers stay whole, and so do all on the way."""
    owners = list(range(size))
    while True:
        pen = Pen(rng, shape, size)
        body = pen.by_tag() if tagged else pen.term(rng.randint(1, depth))
        term = Then(pen.anchor(), body)
        if term.lowered() > MOST_CALLS:
            continue
        here = Here(0, shape, owners, highest=True)
        try:
            for k in range(6):
                high = np.full((size, 1), OPERAND * 1.0)
                term.numpy(here, high, k)
        except TooLargeError:
            continue
        return term


# ---- functions -------------------------------------------------------------------


@dataclasses.dataclass
class Function:
    """One function of a program: `shape` of the mesh or None, the `operands`' local shapes."""

    name: str
    term: object
    shape: tuple
    operands: list
    check_vma: bool

    def calls(self, leaf):
        """Whether there is anybody to call: a group of one has no calls."""
        return (
            self.shape is None
            or len(Here(0, self.shape, range(size_of(self))).groups(leaf.axes)[0]) > 1
        )

    def mesh(self):
        devices = np.array(jax.devices()).reshape(self.shape)
        return Mesh(devices, ("x", "y"), axis_types=(AxisType.Auto,) * 2)

    def make(self, rank, odd=(None, None), donate=False):
        """The jitted function on this rank, with another body on the rank that is `odd`."""
        here = Here(rank, self.shape, range(size_of(self)), odd)

        def function(v, k):
            return self.term.jax(here, v, k)

        function.__name__ = self.name
        if self.shape is not None:
            specs = P(("x", "y"))
            function = jax.shard_map(
                function,
                mesh=self.mesh(),
                in_specs=(specs, P()),
                out_specs=specs,
                check_vma=self.check_vma,
            )
        return jax.jit(function, donate_argnums=0 if donate else ())

    def operand(self, table, rank):
        """This process's part of `table`, which has all ranks' one after the other."""
        if self.shape is None:
            return jax.numpy.asarray(table[rank])
        return spread(self.mesh(), table.reshape(-1, *table.shape[2:]), P(("x", "y")))

    def expected(self, table, k, owners):
        here = Here(0, self.shape, owners)
        return self.term.numpy(here, table.astype(np.float64), k)


def size_of(function):
    return jax.device_count() if function.shape is None else int(np.prod(function.shape))


def has(term, kind):
    return isinstance(term, kind) or any(has(part, kind) for part in term.parts)


def draw_function(rng, number, ranks, one_device, depth):
    """Over a mesh, or, with one device in each process, of world calls."""
    world = one_device and rng.random() < 0.35
    tagged = world and rng.random() < 0.6
    shape = None if world else shape_of_mesh(rng, ranks)
    term = draw_term(rng, shape, ranks, tagged, depth)
    name = rng.choice([f"step_{number}", f"step_{number}", "made_by_a_factory"])
    operands = rng.sample(SHAPES, 3)
    check_vma = rng.random() < 0.5 and not has(term, Gradient)
    return Function(name, term, shape, operands, check_vma)


@dataclasses.dataclass
class Call:
    function: int
    operand: int
    seed: int
    k: int

    def table(self, function, ranks):
        rng = np.random.default_rng(self.seed)
        shape = (ranks, *function.operands[self.operand])
        return rng.integers(0, OPERAND, shape).astype(np.float32)


def draw_program(seed, ranks, one_device, functions, calls, depth=3):
    """(functions, calls): the same on all processes."""
    rng = random.Random(f"program {seed}")
    drawn = [draw_function(rng, i, ranks, one_device, depth) for i in range(functions)]
    order = [
        Call(rng.randrange(functions), rng.randrange(3), rng.randrange(1 << 30), rng.randrange(6))
        for _ in range(calls)
    ]
    return drawn, order
