"""Where a person writes a name of lax, MPI or another library, the error has a call of oriel's,
which is one."""

import ast
import inspect

import oriel
import pytest
from oriel import _other_names


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("psum", "oriel.all_reduce(x, axis_name)"),
        ("pmean", 'oriel.all_reduce(x, axis_name, "mean")'),
        ("pmax", 'oriel.all_reduce(x, axis_name, "max")'),
        ("ppermute", "oriel.permute(x, axis_name, perm)"),
        ("psum_scatter", "oriel.reduce_scatter(x, axis_name)"),
        ("pbroadcast", "oriel.broadcast(x, axis_name, root)"),
        ("allreduce", "oriel.all_reduce(x, axis_name)"),
        ("AllReduce", "oriel.all_reduce(x, axis_name)"),
        ("all_reduce_sum", "oriel.all_reduce(x, axis_name)"),
        ("reduce_sum", 'oriel.reduce(x, axis_name, "sum", root)'),
        ("bcast", "oriel.broadcast(x, axis_name, root)"),
        ("alltoall", "oriel.all_to_all(x, axis_name, split_axis, concat_axis)"),
        ("axis_size", "jax.lax.axis_size(axis_name), or oriel.size() for the whole world"),
    ],
)
def test_names_the_call(name, call):
    with pytest.raises(AttributeError) as error:
        getattr(oriel, name)
    assert str(error.value) == f"module 'oriel' has no attribute {name!r}; it is {call}"


def test_other_names_are_plain():
    with pytest.raises(AttributeError) as error:
        oriel.nonsense  # noqa: B018
    assert str(error.value) == "module 'oriel' has no attribute 'nonsense'"


def test_every_call_can_be_made():
    for text in _other_names.CALLS:
        call = ast.parse(f"oriel.{text}").body[0].value
        assert call.func.attr in oriel.__all__
        given = [None] * len(call.args), {word.arg: None for word in call.keywords}
        inspect.signature(getattr(oriel, call.func.attr)).bind(*given[0], **given[1])


def test_no_name_stands_for_two():
    others = [other for names in _other_names.CALLS.values() for other in names.split()]
    assert len(set(others)) == len(others)
