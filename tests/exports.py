"""Fails unless three lists agree: what the headers mark ORIEL_API, what
src/oriel.map lists, and what a built library exports.

    python3 tests/exports.py build/normal/liboriel.so
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DECLARED = re.compile(r"ORIEL_API[^;(]*?\b(oriel_\w+)\s*(?:\(|;|\[)")


def declared():
    names = set()
    for path in [
        *(ROOT / "include").rglob("*.h"),
        ROOT / "src" / "ffi" / "ffi.h",
        *(
            ROOT / "src" / "core" / name
            for name in ("store/store.h", "start/launcher.h", "world/comm.h")
        ),
    ]:
        text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S)
        names |= set(DECLARED.findall(text))
    return names


def mapped():
    return set(re.findall(r"\b(oriel_\w+);", (ROOT / "src" / "oriel.map").read_text()))


def exported(library):
    lines = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, text=True, capture_output=True
    ).stdout.splitlines()
    names = [line.split() for line in lines]
    # "A" are the version names themselves.
    return {name[-1].split("@")[0] for name in names if name[-2] != "A"}


def main():
    lists = {
        "the headers": declared(),
        "src/oriel.map": mapped(),
        sys.argv[1]: exported(sys.argv[1]),
    }
    every = set.union(*lists.values())
    failed = False
    for name in sorted(every):
        absent = [where for where, names in lists.items() if name not in names]
        if absent:
            print(f"{name} is missing in {' and in '.join(absent)}")
            failed = True
    soname = subprocess.run(
        ["objdump", "-p", sys.argv[1]], check=True, text=True, capture_output=True
    ).stdout
    if not re.search(r"SONAME\s+liboriel\.so\.\d+\n", soname):
        print(f"{sys.argv[1]} has no SONAME")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
