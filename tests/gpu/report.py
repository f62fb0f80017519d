"""The committed results of the GPU tests, and whether they are current.

    python3 tests/gpu/report.py write OUT     from what run.sh left in OUT: results/<gpu>.json
                                              here, and its times bench/results/gpu_<gpu>.json;
                                              in the tree that was run, for the commit they name
    python3 tests/gpu/report.py check         a sentence for each that is stale, failed or
                                              has rows without a result; 77

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
TIMES = ROOT / "bench" / "results"
COVERED = [
    "include/oriel/kernel*.h",
    "include/oriel/op.h",
    "src/ops/host_op.*",
    "tests/kernels/gpu_op.cu",
    "tests/kernels/machines.cu",
    "tests/fake/gin*",
    "src/fabric/cuda*",
    "src/fabric/port.*",
    "src/core/device*",
    "src/core/register*",
    "src/core/nccl*",
    "src/core/gin.*",
    "src/core/borrow.*",
    "src/core/appoint.*",
    "src/ffi/lend.*",
    "src/core/multicast.*",
    "src/fabric/nccl*",
    "src/core/nvtx.*",
    "src/core/cuda_facts.*",
    "src/ops/cuda/*",
    "src/ops/reduce_element.h",
    "src/ffi/cuda.c",
    "src/ffi/attached.*",
    "python/oriel/_verify*.py",
    "tests/gpu/*.c",
    "tests/gpu/jax_*.py",
    "tests/gpu/run.sh",
    "tests/support/gpu.*",
    "tests/support/timing.*",
    "tests/support/nccl.*",
    "tests/support/values.*",
    "tests/support/ways.*",
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


def check():
    """Prints what is wrong; 0, 1 (a failed row) or 77 (stale, or rows that were skipped)."""
    now = digests()
    paths = sorted(RESULTS.glob("*.json"))
    status = 0 if paths else 77
    if not paths:
        print("there are no results of a GPU")
    for path in paths:
        result = json.loads(path.read_text())
        bad = [row["name"] for row in result["rows"] if row["outcome"] == "FAILED"]
        skipped = [
            f"{row['name']} ({row['detail']})"
            for row in result["rows"]
            if row["outcome"] == "skipped"
        ]
        then = result["digests"]
        changed = sorted(
            name for name in now.keys() | then.keys() if now.get(name) != then.get(name)
        )
        if bad:
            print(f"{path.name}: failed: {', '.join(bad)}")
            return 1
        if changed:
            print(f"{path.name} is stale: changed since: {', '.join(changed)}")
            status = 77
        if skipped:
            print(f"{path.name} has rows without a result: {'; '.join(skipped)}")
            status = 77
    return status


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        sys.exit(check())
