"""Programs as people write them, whose processes are not alike in everything: they meet."""

import pytest
from identity_support import check_case, run_in_turn

pytestmark = pytest.mark.timeout(300)

CASES = [
    "rank_is_a_constant",
    "one_rank_moves_what_is_mapped",
    "one_rank_prints",
    "one_rank_branches",
    "data_of_the_rank",
    "world_constants",
    "ahead_and_lazy",
    "shapes_in_other_orders",
    "compiled_again",
    "hoisted",
    "independent_calls",
    "independent_calls_in_a_jit",
    "independent_calls_in_a_loop",
    "independent_regions",
    "other_lines",
    "kernel_ahead_and_lazy",
    "nested_twice",
    "raised_before_a_call",
]


@pytest.fixture(scope="module")
def told():
    return run_in_turn("rows.py", CASES, ORIEL_TIMEOUT="20")


@pytest.mark.parametrize("case", CASES)
def test_row(told, case):
    extra = check_case(told, case)
    if case == "raised_before_a_call":
        # The others heard whom they waited for.
        assert "rank 1 (process 1) did not come" in extra[0][0]["heard"]
