"""Which calls ask XLA for its communicator, and how they name their groups to it: by places in
the program's list of devices. On CPUs none does."""

import re

import jax.numpy as jnp
import oriel
import pytest
from jax.sharding import PartitionSpec as P
from oriel import _lib, _world
from oriel._collectives import primitive as _primitive
from support import make_mesh, over

ORDER = (2, 0, 3, 1, 7, 6, 5, 4)


@pytest.fixture
def choose(monkeypatch):
    """Lowers as for GPUs, with ORIEL_NCCL_COMM as given."""
    cpu = _world.current()

    class Gpus:
        platform = "gpu"

        def __getattr__(self, name):
            return getattr(cpu, name)

    def chosen(value):
        monkeypatch.setattr(_primitive._world, "current", Gpus)
        monkeypatch.setattr(_lib, "option", lambda name: value)

    return chosen


def lowered(axis):
    mesh = make_mesh((2, 4), ("x", "y"), ORDER)
    step = over(mesh, lambda v: oriel.all_reduce(v, axis), P("x", "y"), P(), check_vma=False)
    return step.lower(jnp.ones((2, 4), jnp.float32)).as_text()


def numbers(text, name):
    return [int(n) for n in re.search(rf"{name} = dense<\[(.*?)\]>", text)[1].split(",")]


@pytest.mark.parametrize(
    "axis, places",
    [
        ("x", [0, 4, 1, 5, 2, 6, 3, 7]),
        ("y", [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_groups_are_named_by_places(choose, axis, places):
    choose("xla")
    text = lowered(axis)
    assert "@oriel_all_reduce_borrowing" in text
    assert numbers(text, "places") == places
    assert numbers(text, "groups") == [ORDER[place] for place in places]


@pytest.mark.parametrize("value", ["auto", "own", "none"])
def test_only_who_is_told_to_borrows(choose, value):
    choose(value)
    text = lowered("x")
    assert "@oriel_all_reduce(" in text and "places" not in text


def test_nothing_is_borrowed_on_cpus(monkeypatch):
    monkeypatch.setattr(_lib, "option", lambda name: "xla")
    text = lowered("x")
    assert "@oriel_all_reduce(" in text and "places" not in text
