"""What processes must do alike: where they do not, a sentence says so, and no number is wrong."""

import pytest
from identity_support import both_sides, check_soon, run_program

pytestmark = pytest.mark.timeout(300)


def run_case(case, processes=2, **env):
    status, output, reports = run_program("limits.py", case, processes=processes, **env)
    assert sorted(reports) == list(range(processes)), output
    return status, output, reports


def test_functions_of_a_factory():
    _, _, reports = run_case("made_by_a_factory", processes=3)
    told = [entries[0] for entries in reports.values()]
    for entry in told:
        sides = both_sides(entry["text"])
        assert "max" in sides.pop(1) and "sum" in sides.popitem()[1]
    check_soon(told)


def test_a_step_less():
    """The ranks wait in two functions, and both hear what the other is in."""
    _, _, reports = run_case("one_step_less", ORIEL_TIMEOUT="3")
    assert "wait for each other" in reports[1][0]["text"]


def test_a_loop_that_goes_another_way():
    """No call of an execution ever meets one of another."""
    _, _, reports = run_case("another_way_round", processes=3)
    for rank, entries in reports.items():
        assert len(entries) == (3 if rank == 1 else 2), entries  # the step it made alone
        assert "in execution 2" in entries[-2]["text"], entries
        assert "loop or branch" in entries[-2]["text"], entries


def test_a_function_launched_by_several_threads():
    """Right, or refused: what is raised says why."""
    status, output, reports = run_case("several_threads")
    assert status == 0, output
    for entries in reports.values():
        for text in entries[0]["texts"]:
            assert "several threads" in text or "was revoked" in text, text


def test_deserialised():
    status, output, _ = run_case("deserialised")
    assert status == 0, output


def test_each_rank_calls_a_function_of_its_own():
    _, _, reports = run_case("another_function", ORIEL_TIMEOUT="3")
    for entries in reports.values():
        assert "wait for each other" in entries[0]["text"]
        assert "do they run the same program" in entries[0]["text"]


def test_a_function_without_the_call():
    """The rank that made none comes to its end, and the others hear of that."""
    _, _, reports = run_case("no_call")
    assert reports[1][0]["text"] is None
    assert "process 1" in reports[0][0]["text"]
    assert reports[0][0]["told"] - reports[0][0]["begun"] < 30


@pytest.mark.parametrize("case, said", [("tag_on_a_mesh", "axis_name"), ("tag_is_no_text", "tag")])
def test_arguments(case, said):
    status, output, reports = run_case(case)
    assert status == 0, output
    assert all(said in entry["text"] for entry in reports[0][:3])
