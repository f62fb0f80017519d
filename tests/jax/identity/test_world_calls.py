"""Calls over the whole world (axis_name=None), of programs that differ between ranks."""

import pytest
from identity_support import both_sides, check_case, check_soon, run_in_turn

pytestmark = pytest.mark.timeout(300)

CASES = [
    "by_tag",
    "in_other_orders",
    "every_operation",
    "tag_twice",
    "unused_on_top",
    "unused_elsewhere",
    "ordered",
    "transposes",
    "beside_meshes",
]
TOLD = ["tag_twice_in_other_blocks", "rank_and_index", "transposes_alone"]


@pytest.fixture(scope="module")
def told():
    return run_in_turn("world_calls.py", CASES + TOLD, ORIEL_TIMEOUT="10")


@pytest.mark.parametrize("case", CASES)
def test_world_calls(told, case):
    check_case(told, case)


def test_a_tag_in_two_blocks_is_refused(told):
    for (entry,) in check_case(told, "tag_twice_in_other_blocks"):
        assert "'same'" in entry["text"] and "tag" in entry["text"]


def test_index_is_traced(told):
    check_case(told, "rank_and_index")


def test_a_transpose_meets_no_call_of_another_rank(told):
    each = check_case(told, "transposes_alone")
    assert all("wait for each other" in entries[0]["text"] for entries in each)


def test_three_ranks():
    """Of which each calls from a program of its own; then one asks for something else."""
    told = run_in_turn("world_calls.py", ["by_tag", "differ"], processes=3)
    check_case(told, "by_tag")
    entries = [entries[0] for entries in check_case(told, "differ")]
    for entry in entries:
        sides = both_sides(entry["text"])
        assert sides.pop(1).startswith("all_reduce max of 16 bytes")
        assert "all_reduce sum of 16 bytes" in sides.popitem()[1]
    check_soon(entries)
