"""Trees between processes: the bits of one by one, and what is told where they differ."""

from pathlib import Path

import pytest
import support

PROGRAM = Path(__file__).resolve().parent / "programs" / "trees.py"

TOTAL = sum(1 + 997 * i % 1024 for i in range(100))  # elements, as the program has them

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("processes", [2, 3])
def test_trees(processes):
    options = {"ORIEL_TIMEOUT": "60", "ORIEL_WARN_AFTER": "1"}
    _, output, reports = support.run_processes(PROGRAM, processes=processes, **options)
    assert len(reports) == processes, output
    for over_world, over_axes in reports.values():
        assert over_world["differs"].count(f"sum of {4 * TOTAL} bytes of f32 in 100 arrays") > 1
        assert f"sum of {4 * TOTAL} bytes of f32 in 100 arrays" in over_axes["differs"], output
        assert f"sum of {4 * TOTAL + 4} bytes of f32 in 100 arrays" in over_axes["differs"], output
