"""The committed results of the GPU tests, and whether they are current.

    python3 tests/gpu/report.py write OUT     from what run.sh left in OUT: results/<gpu>.json
                                              here, and its times bench/results/gpu_<gpu>.json;
                                              in the tree that was run, for the commit they name
    python3 tests/gpu/report.py check         what is wrong with them, in a sentence each: 1 if a
                                              row failed, if a source changed since and is not
                                              in stale.txt, or if one there has not; 77 if all
                                              that changed is there, or rows have no result

Results carry a digest of each source they were made from.
"""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "tests" / "gpu" / "results"
STALE = ROOT / "tests" / "gpu" / "stale.txt"
AGAIN = (
    "run tests/gpu/run.sh BUILD OUT on a machine with a GPU, then tests/gpu/report.py write OUT, "
    'and commit the results; or list the source in tests/gpu/stale.txt as "path | reason"'
)
TIMES = ROOT / "bench" / "results"
COVERED = [
    "include/oriel/**/*.h",
    "python/oriel/_verify/*.py",
    "src/core/device/*",
    "src/core/nccl/*",
    "src/experimental/*",
    "src/fabric/cuda/*",
    "src/fabric/nccl/*",
    "src/fabric/port.*",
    "src/ffi/attached.*",
    "src/ffi/cuda.c",
    "src/ffi/lend.*",
    "src/ops/choose_on.*",
    "src/ops/cuda/**/*",
    "src/ops/kernel/host_op.*",
    "src/ops/reduce/element.h",
    "tests/fake/gin*",
    "tests/gpu/bench/*.py",
    "tests/gpu/c/*.c",
    "tests/gpu/jax/*.py",
    "tests/gpu/run.sh",
    "tests/kernels/gpu_op.cu",
    "tests/kernels/machines.cu",
    "tests/support/gpu/*",
    "tests/support/values.*",
]


def digest(path):
    """Of the code: comments and spaces change nothing."""
    text = path.read_text()
    if path.suffix in (".c", ".h", ".cu", ".cuh"):
        text = " ".join(re.sub(r"/\*.*?\*/", " ", text, flags=re.S).split())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digests():
    files = sorted(path for pattern in COVERED for path in ROOT.glob(pattern) if path.is_file())
    return {path.relative_to(ROOT).as_posix(): digest(path) for path in files}


def read_rows(text):
    rows = []
    for name, outcome, detail in re.findall(r"^row (\S+.*?) (ok|FAILED|skipped)(.*)$", text, re.M):
        rows.append({"name": name, "outcome": outcome, "detail": detail.strip()})
    return rows


def read_samples(folder):
    lines = [
        line for path in sorted(folder.glob("bench*.log")) for line in path.read_text().splitlines()
    ]
    return [
        json.loads(line[line.index("{") :])
        for line in lines
        if re.match(r"(\[\d+\] )?sample \{", line)
    ]


def with_samples(head, samples):
    """JSON with a line for each sample."""
    lines = ",\n".join(f"  {json.dumps(sample)}" for sample in samples)
    return json.dumps(head, indent=1).removesuffix("\n}") + f',\n "samples": [\n{lines}\n ]\n}}\n'


def commit():
    done = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--tags", "--dirty"],
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or "unknown"


def write(folder):
    gpu, driver = (folder / "gpu.txt").read_text().strip().split(", ")[:2]
    name = gpu.lower().replace(" ", "_")
    head = {
        "gpu": gpu,
        "driver": driver,
        "command": "tests/gpu/run.sh BUILD OUT",
        "commit": commit(),
    }
    rows, samples = read_rows((folder / "rows.txt").read_text()), read_samples(folder)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(
        json.dumps(head | {"digests": digests(), "rows": rows}, indent=1) + "\n"
    )
    (TIMES / f"gpu_{name}.json").write_text(with_samples(head, samples))
    print(f"{name}: {len(rows)} rows, {len(samples)} times")


def read_stale(text):
    """{path: reason}"""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return dict(tuple(part.strip() for part in f"{line}|".split("|")[:2]) for line in lines)


def judge(now, thens, listed):
    """(status, sentence) about results with the digests `thens`, of sources that have `now`."""
    names = now.keys() | {name for then in thens for name in then}
    changed = sorted(
        name for name in names if any(now.get(name) != then.get(name) for then in thens)
    )
    due = [name for name in changed if name not in listed]
    over = [name for name in listed if name not in changed]
    bare = [name for name, reason in listed.items() if not reason]
    if not thens:
        return 1, f"there are no results of a GPU: {AGAIN}"
    if due:
        return 1, f"results are stale: changed since: {', '.join(due)}; {AGAIN}"
    if over:
        return 1, f"results are current for {', '.join(over)}: remove that from tests/gpu/stale.txt"
    if bare:
        return 1, f"results are stale, and tests/gpu/stale.txt says not why: {', '.join(bare)}"
    if changed:
        reasons = "; ".join(dict.fromkeys(listed.values()))
        return 77, f"results are known to be stale for {', '.join(changed)}: {reasons}"
    return 0, ""


def judge_rows(name, rows):
    """The same about the rows of one file."""
    bad = [row["name"] for row in rows if row["outcome"] == "FAILED"]
    skipped = [f"{row['name']} ({row['detail']})" for row in rows if row["outcome"] == "skipped"]
    if bad:
        return 1, f"{name}: failed: {', '.join(bad)}"
    if skipped:
        return 77, f"{name} has rows without a result: {'; '.join(skipped)}"
    return 0, ""


def check():
    """Prints what is wrong, in one line since a skip shows the last; 0, 1 or 77, as above."""
    results = {path.name: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    thens = [result["digests"] for result in results.values()]
    found = [judge(digests(), thens, read_stale(STALE.read_text()))]
    found += [judge_rows(name, result["rows"]) for name, result in results.items()]
    wrong = [(status, sentence) for status, sentence in found if status]
    if wrong:
        print("; ".join(sentence for _, sentence in wrong))
    return min((status for status, _ in wrong), default=0)  # a failure before a skip


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        sys.exit(check())
