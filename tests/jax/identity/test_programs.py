"""Random programs, compiled in random orders on each process: right, or the sentence that names
what differs. The seed of a failure makes the same program again (programs/random_programs.py)."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from identity_support import both_sides, check_soon, run_program
from support import SOAK

pytestmark = pytest.mark.timeout(7200 if SOAK else 300)

# Functions drawn for a seed, and calls of them. Compiling is what takes time: a process compiles
# what it calls, one of three shapes of one of the functions, about once. With 12 calls the 2,000
# seeds of a soak take two cores about two hours, with 60 they would take ten; more cores take more seeds at a time.
SIZE = (10, 12) if SOAK else (3, 4)
# (processes, devices of each): seeds. 2,000 in a soak.
SEEDS = {
    (2, 1): 700 if SOAK else 17,
    (3, 1): 500 if SOAK else 13,
    (4, 1): 400 if SOAK else 11,
    (2, 2): 300 if SOAK else 7,
    (8, 1): 100 if SOAK else 2,
}
DIFFERENT = {2: 300, 3: 300, 4: 200} if SOAK else {2: 8, 3: 5}


def run_seeds(first, count, processes, devices=1, mode="same", **env):
    """What each process reported. As many jobs side by side as there are cores for."""
    jobs = max(1, len(os.sched_getaffinity(0)) // processes) if SOAK else 1
    share = -(-count // jobs)
    parts = [
        (seed, min(share, first + count - seed)) for seed in range(first, first + count, share)
    ]
    with ThreadPoolExecutor(jobs) as pool:
        jobs = list(pool.map(lambda part: run_job(*part, processes, devices, mode, **env), parts))
    return [[entry for job in jobs for entry in job[i]] for i in range(processes)]


def run_job(first, count, processes, devices, mode, **env):
    status, output, reports = run_program(
        "random_programs.py",
        first,
        count,
        *SIZE,
        mode,
        processes=processes,
        devices=devices,
        timeout=7000 if SOAK else 240,
        **env,
    )
    assert status == 0, output
    assert len(reports) == processes and all(e[-1]["ok"] for e in reports.values()), output
    return [entries[:-1] for entries in reports.values()]


@pytest.mark.parametrize("processes, devices", SEEDS)
def test_random_programs(processes, devices, record_property):
    count, first = SEEDS[processes, devices], 10_000 * processes + 100_000 * devices
    record_property("seeds", f"{first} to {first + count - 1}")
    run_seeds(first, count, processes, devices)


def test_caches_cold_and_warm(tmp_path, record_property):
    """Executables out of a persistent cache, which some processes have and others have not."""
    count = 20 if SOAK else 2
    record_property("seeds", f"1 to {count}")
    for _ in ("cold", "warm"):
        run_seeds(1, count, 2, CACHE=str(tmp_path))
    assert any(tmp_path.rglob("*")), "nothing was cached"


@pytest.mark.parametrize("processes", DIFFERENT)
def test_programs_that_differ(processes, record_property):
    """One process's program has a call more, or one less, or one of another shape, type,
    operation or root: all hear of it, with both sides."""
    count, first = DIFFERENT[processes], 1_000_000 * processes
    record_property("seeds", f"{first} to {first + count - 1}")
    reports = run_seeds(first, count, processes, mode="differ")
    for entries in zip(*reports, strict=True):
        victim = entries[0]["victim"]
        for entry in entries:
            assert entry["text"], f"no error: {entry}"
            asked = both_sides(entry["text"])
            assert victim in asked, f"rank {victim} is the odd one: {entry}"
            assert entry["status"] in ("MISMATCH", "REVOKED"), entry
        check_soon(entries)
