#!/usr/bin/env python3
"""Runs the suite of JAX with other versions of Python and JAX, and notes the outcome
in tests/versions.json.

    tests/versions.py python3.13=0.11.2 python3.12=0.12.0.1
"""

import datetime
import json
import re
import subprocess
import sys

from harness import ROOT, commit_of_tree

sys.path.insert(0, str(ROOT / "scripts"))
from setup import requirements

FILE = ROOT / "tests" / "versions.json"
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)
ASK = "import jax, platform; print(platform.python_version(), jax.__version__)"


def sh(*command, **keywords):
    return subprocess.run([str(word) for word in command], cwd=ROOT, text=True, **keywords)


def install(python, jax):
    """A virtual environment with that JAX and this tree; its Python."""
    folder = ROOT / "build" / f"{python.rsplit('/')[-1]}-jax{jax}"
    inside = folder / "bin" / "python"
    sh(python, "-m", "venv", "--clear", folder, check=True)
    sh(inside, "-m", "pip", "install", "-q", *requirements("test"), f"jax=={jax}", check=True)
    sh(inside, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", ".", check=True)
    return inside


def measure(python, jax, commit):
    inside = install(python, jax)
    versions = sh(inside, "-c", ASK, check=True, capture_output=True).stdout.split()
    output = sh(inside, "tests/run", "jax", stdout=subprocess.PIPE).stdout
    print(output)
    passed, failed, skipped = map(int, COUNTS.search(output).groups())
    return dict(zip(["python", "jax"], versions)) | {
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "commit": commit,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def main():
    pairs = [word.partition("=") for word in sys.argv[1:]]
    if not pairs or not all(python and jax for python, _, jax in pairs):
        sys.exit(__doc__)
    commit = commit_of_tree()
    rows = {
        (row["python"], row["jax"]): row
        for row in (json.loads(FILE.read_text()) if FILE.exists() else [])
    }
    for python, _, jax in pairs:
        row = measure(python, jax, commit)
        rows[row["python"], row["jax"]] = row
        FILE.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    return any(row["failed"] for row in rows.values())


if __name__ == "__main__":
    sys.exit(main())
