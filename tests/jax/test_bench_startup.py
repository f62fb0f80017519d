"""oriel bench startup: what it counts, and its bars."""

import json

from bench_support import NEEDS_PLOTS, check_plots, run_command


@NEEDS_PLOTS
def test_startup(tmp_path):
    out = tmp_path / "out.json"
    done = run_command("startup", "-n", 5, "--rounds", 2, "--json", out, "--plot", tmp_path / "s")
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert [row["processes"] for row in rows] == [1, 2, 4, 5]
    for row in rows:
        n = row["processes"]
        assert 0 < row["beyond_s"] <= row["create_s_high"]
        assert row["heap_bytes"] > 1 << 20 and row["private_bytes"] > 0
        # Process 0 asks everybody twice; the others say and hear two things each.
        assert (row["requests_most"] >= n) == (n > 1)
        assert row["requests_mean"] < 10
    check_plots(tmp_path / "s")
