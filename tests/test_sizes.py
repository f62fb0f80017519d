"""sizes.py must find each kind of what is too large, and nothing at the bound."""

import sys
import tempfile
from pathlib import Path

import sizes

C = "static int f(int a,\n             int b)\n{{\n{}}}\n"
PYTHON = "def f():\n{}"

# file, its content, what is said of it ("" when it is fine)
TRIALS = [
    ("src/a.c", "\n" * 600, ""),
    ("src/a.c", "\n" * 601, "src/a.c: 601 lines, more than 600"),
    ("docs/a.md", "\n" * 601, ""),
    ("src/a.c", C.format("    f();\n" * 56), ""),
    ("src/a.c", "\n" + C.format("    f();\n" * 57), "src/a.c:2: f has 61 lines, more than 60"),
    ("tools/a.h", "enum {\n" + "    A,\n" * 70 + "};\n", ""),
    ("python/a.py", PYTHON.format("    f()\n" * 59), ""),
    ("python/a.py", PYTHON.format("    f()\n" * 60), "python/a.py:1: f has 61 lines, more than 60"),
]


def said_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return "\n".join(sizes.violations(root))


def main():
    trials = [({name: text}, wanted) for name, text, wanted in TRIALS]
    for count, wanted in (20, ""), (21, "tests/b: 21 source files, more than 20"):
        trials.append(({f"tests/b/{i}.py": "" for i in range(count)}, wanted))
    wrong = [(files, said) for files, wanted in trials if (said := said_of(files)) != wanted]
    for files, said in wrong:
        print(f"{list(files)[0]}: {said!r}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
