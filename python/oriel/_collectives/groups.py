"""Who takes part in a call: devices along axes, all ranks of the world, or a group of them.

A call's `axes` are a tuple of names or, where their devices form groups, a Divided; or they are None
or a Group. With these two it is a call over ranks: each rank runs a program of its own, with one
device."""

import dataclasses
import operator

import numpy as np

from oriel import _world

_MOST_LISTED = 8  # ranks that a message lists; of more, the first ones and the last


@dataclasses.dataclass(frozen=True, repr=False)
class Group:
    """Ranks of the world that call together; oriel.group makes one."""

    ranks: tuple

    @property
    def size(self):
        return len(self.ranks)

    @property
    def index(self):
        """This process's place in it; None: it is no member."""
        rank = _world.rank()
        return self.ranks.index(rank) if rank in self.ranks else None

    def __repr__(self):
        return f"oriel.group({list(self.ranks)})"

    def __str__(self):
        if self.size <= _MOST_LISTED:
            return f"ranks {list(self.ranks)}"
        first = ", ".join(map(str, self.ranks[: _MOST_LISTED // 2]))
        return f"{self.size} ranks [{first}, ..., {self.ranks[-1]}]"


def group(ranks):
    """Some ranks of the world, as what an operation's `group=` takes: only they make the call, each
    from a program of its own, and their place in `ranks` is their index in it.

    Local: nothing is exchanged, and equal lists are one group, in every world that has their ranks.
    `size`, `ranks` and `index`, of this process or None, are its attributes."""
    try:
        given = list(ranks)
        numbers = tuple(operator.index(rank) for rank in given)
    except TypeError:
        raise TypeError(f"oriel.group: ranks must be a list of ranks, got {ranks!r}") from None
    if not numbers:
        raise ValueError("oriel.group: ranks is empty")
    for i, rank in enumerate(numbers):
        if rank < 0:
            raise ValueError(f"oriel.group: ranks[{i}] is {rank}")
        if rank in numbers[:i]:
            raise ValueError(f"oriel.group: rank {rank} is in ranks twice: {list(numbers)}")
    made = Group(numbers)
    if _world.is_initialized():
        _check_ranks("group", made)
    return made


def _check_ranks(operation, group):
    size = _world.size()
    if max(group.ranks) >= size:
        raise ValueError(
            f"oriel.{operation}: {group!r} has rank {max(group.ranks)}, but this world has {size} "
            "ranks"
        )


def check_member(operation, group):
    """That this process may make a call of the group."""
    _check_ranks(operation, group)
    if group.index is None:
        raise ValueError(
            f"oriel.{operation}: rank {_world.rank()} is not in {group!r}, and only its members "
            "make the call"
        )


def chosen(operation, axis_name, group):
    """What a call is over: `group` in the place of `axis_name`, where it is given."""
    if group is None:
        return axis_name
    if not isinstance(group, Group):
        raise TypeError(f"oriel.{operation}: group must be made by oriel.group, got {group!r}")
    if axis_name is not None:
        raise ValueError(
            f"oriel.{operation}: a call is over axis_name={axis_name!r} or over group={group!r}, "
            "not both"
        )
    return group


@dataclasses.dataclass(frozen=True)
class Divided:
    """Axes whose devices form groups: lax's axis_index_groups."""

    names: tuple
    groups: tuple  # of tuples of indices along the names, each once

    def sizes(self):
        """Of each device's group."""
        sizes = np.zeros(sum(map(len, self.groups)), int)
        for group in self.groups:
            sizes[list(group)] = len(group)
        return sizes


def divide(operation, names, index_groups, size, even):
    """The Divided of lax's argument, for the `size` devices along the names; `even`: its groups
    must be of one size."""
    try:
        groups = tuple(tuple(operator.index(i) for i in group) for group in index_groups)
    except TypeError:
        raise TypeError(
            f"oriel.{operation}: axis_index_groups must be a list of lists of indices, got "
            f"{index_groups!r}"
        ) from None
    if sorted(i for group in groups for i in group) != list(range(size)) or () in groups:
        raise ValueError(
            f"oriel.{operation}: axis_index_groups must cover all indices exactly once, here 0 to "
            f"{size - 1} of {names}, in groups that are not empty; got {index_groups!r}"
        )
    divided = Divided(names, groups)
    if even and not is_even(divided):
        raise ValueError(
            f"oriel.{operation}: axis_index_groups must be of one size, got {index_groups!r}"
        )
    return divided


def check_undivided(what, axes):
    if isinstance(axes, Divided):
        raise NotImplementedError(f"oriel.{what} with axis_index_groups, which lax has not either")


# ---- what the operations ask of axes ---------------------------------------------


def over_ranks(axes):
    """Whether a call is over ranks: the world or a group."""
    return axes is None or isinstance(axes, Group)


def undivided(axes):
    """All that its groups are of."""
    return axes.names if isinstance(axes, Divided) else axes


def index_groups_of(axes):
    return axes.groups if isinstance(axes, Divided) else None


def is_even(axes):
    """Whether all groups have one size."""
    return not isinstance(axes, Divided) or len(set(map(len, axes.groups))) == 1


def names_of(axes):
    """Its axes of a mesh or of vmap: none, if it is over ranks."""
    return () if over_ranks(axes) else undivided(axes)


def ranks_of(axes):
    """The members of a call over ranks, in their order."""
    return tuple(range(_world.size())) if axes is None else axes.ranks


def index_in(axes):
    """This process's place among them."""
    return _world.rank() if axes is None else axes.index


def text_of(axes):
    """The members of a call over ranks, in full; "": it is over names."""
    if not over_ranks(axes):
        return ""
    return ",".join(map(str, ranks_of(axes)))


def describe(text):
    """The same for messages."""
    ranks = tuple(map(int, text.split(",")))
    return "the world" if ranks == ranks_of(None) else str(Group(ranks))


# ---- groups along axes --------------------------------------------------------------


def of_axes(ranks, axis_names, axes):
    """One row per group that an operation over `axes` forms.

    `ranks` has one entry per device of the mesh, in its shape. A row lists the
    group as lax.axis_index(axes) counts it: the last axis changes fastest. Rows of
    groups that are smaller than others end in -1."""
    names = undivided(axes)
    joined = [axis_names.index(name) for name in names]
    kept = [i for i in range(len(axis_names)) if i not in joined]
    size = int(np.prod([ranks.shape[i] for i in joined], dtype=int))
    rows = np.transpose(ranks, kept + joined).reshape(-1, size)
    if names is axes:
        return rows
    most = max(map(len, axes.groups))
    parts = np.full((len(rows), len(axes.groups), most), -1)
    for i, group in enumerate(axes.groups):
        parts[:, i, : len(group)] = rows[:, list(group)]
    return parts.reshape(-1, most)
