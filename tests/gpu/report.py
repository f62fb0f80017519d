"""The committed results of the GPU tests, and whether they are current.

    python3 tests/gpu/report.py write OUT     results/<gpu>.json from what run.sh left in OUT
    python3 tests/gpu/report.py check         a sentence for each that is stale or failed; 77

Results carry a digest of each source they were made from.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "tests" / "gpu" / "results"
COVERED = ["include/oriel/kernel*.h", "src/fabric/cuda*", "src/fabric/port.*", "src/core/device*",
           "src/core/register.c", "src/core/nvtx.*", "src/core/cuda_facts.*",
           "src/ops/cuda/*", "src/ops/reduce_element.h", "src/ffi/cuda.c", "src/ffi/attached.*",
           "tests/gpu/*.c", "tests/gpu/jax_*.py", "tests/gpu/run.sh", "tests/support/gpu.*"]


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
    lines = [line for path in sorted(folder.glob("bench*.log"))
             for line in path.read_text().splitlines()]
    return [json.loads(line[line.index("{"):]) for line in lines
            if re.match(r"(\[\d+\] )?sample \{", line)]


def write(folder):
    gpu, driver = (folder / "gpu.txt").read_text().strip().split(", ")[:2]
    result = {"gpu": gpu, "driver": driver, "digests": digests(),
              "rows": read_rows((folder / "rows.txt").read_text()),
              "samples": read_samples(folder)}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{gpu.lower().replace(' ', '_')}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{path.relative_to(ROOT)}: {len(result['rows'])} rows, {len(result['samples'])} times")


def check():
    """Prints what is wrong; 0, 1 (a failed row) or 77 (stale)."""
    now = digests()
    paths = sorted(RESULTS.glob("*.json"))
    status = 0 if paths else 77
    if not paths:
        print("there are no results of a GPU")
    for path in paths:
        result = json.loads(path.read_text())
        bad = [row["name"] for row in result["rows"] if row["outcome"] == "FAILED"]
        then = result["digests"]
        changed = sorted(name for name in now.keys() | then.keys()
                         if now.get(name) != then.get(name))
        if bad:
            print(f"{path.name}: failed: {', '.join(bad)}")
            return 1
        if changed:
            print(f"{path.name} is stale: changed since: {', '.join(changed)}")
            status = 77
    return status


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        sys.exit(check())
