"""Fails unless three lists agree, for what is public and for what is oriel's own: what headers
mark ORIEL_API (those of include/; those of src/), the stanzas of src/oriel.map, and what a built
library exports. Stanza and SONAME carry the release: before 1.0 each 0.x is an ABI of its own.

    python3 tests/exports.py build/normal/liboriel.so
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DECLARED = re.compile(r"ORIEL_API[^;(]*?\b(oriel_\w+)\s*(?:\(|;|\[)")
STANZA = re.compile(r"^(ORIEL_\S+) \{(.*?)^\}", re.M | re.S)
PRIVATE = "ORIEL_PRIVATE"


def release():
    header = (ROOT / "include" / "oriel" / "oriel.h").read_text()
    return ".".join(
        re.search(rf"ORIEL_VERSION_{part}\s+(\d+)", header)[1] for part in ("MAJOR", "MINOR")
    )


def declared(folder):
    names = set()
    for path in (ROOT / folder).rglob("*.h"):
        text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S)
        names |= set(DECLARED.findall(text))
    return names


def in_headers():
    """(stanza, name), ..."""
    return {
        (stanza, name)
        for stanza, folder in ((f"ORIEL_{release()}", "include"), (PRIVATE, "src"))
        for name in declared(folder)
    }


def in_map():
    text = (ROOT / "src" / "oriel.map").read_text()
    return {
        (stanza, name)
        for stanza, body in STANZA.findall(text)
        for name in re.findall(r"\b(oriel_\w+);", body)
    }


def output_of(*command):
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout


def in_library(library):
    lines = output_of("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines()
    # "A" are the names of the stanzas themselves.
    words = [line.split()[-1] for line in lines if line.split()[-2] != "A"]
    return {(version.strip("@"), name) for name, _, version in (w.partition("@") for w in words)}


def main():
    library = sys.argv[1]
    lists = {
        "the headers": in_headers(),
        "src/oriel.map": in_map(),
        library: in_library(library),
    }
    problems = []
    for stanza, name in sorted(set.union(*lists.values())):
        absent = [where for where, found in lists.items() if (stanza, name) not in found]
        if absent:
            problems.append(f"{name} is not of {stanza} in {' and in '.join(absent)}")
    problems += [
        f"{name} is public and private" for name in sorted(declared("include") & declared("src"))
    ]
    soname = re.search(r"SONAME\s+(\S+)", output_of("objdump", "-p", library))
    if not soname or soname[1] != f"liboriel.so.{release()}":
        problems.append(f"the SONAME of {library} is not liboriel.so.{release()}")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
