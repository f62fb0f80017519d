"""Fails on what has grown too large to be read at once: a folder of more than 20 source files, a
file of more than 600 lines, a function of more than 60."""

import ast
import re
import sys
from pathlib import Path

FOLDERS = ("bench", "examples", "include", "python", "scripts", "src", "tests", "tools")
C = (".c", ".h", ".cu", ".cuh")
SOURCES = (*C, ".py", ".sh", ".pml")
MOST_FILES, MOST_LINES, MOST_OF_FUNCTION = 20, 600, 60

# As clang-format lays out: a function's body ends with the first brace in column 0.
C_FUNCTION = re.compile(r"^\w[^\n;=]*?(\w+)\([^;{}]*\)\s*\{[ \\]*\n(.*?)^\}", re.M | re.S)


def c_functions(text):
    """(name, lines, where it begins) of each."""
    for found in C_FUNCTION.finditer(text):
        yield found[1], found[0].count("\n") + 1, text.count("\n", 0, found.start()) + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.end_lineno - node.lineno + 1, node.lineno


def violations(root):
    files = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES and path.is_file():
                files.setdefault(path.parent, []).append(path)
    for folder, paths in files.items():
        if len(paths) > MOST_FILES:
            yield f"{folder.relative_to(root)}: {len(paths)} source files, more than {MOST_FILES}"
        for path in paths:
            yield from (f"{path.relative_to(root)}{text}" for text in check_file(path))


def check_file(path):
    text = path.read_text()
    lines = text.count("\n")
    functions = {".py": python_functions, **dict.fromkeys(C, c_functions)}.get(path.suffix)
    if lines > MOST_LINES:
        yield f": {lines} lines, more than {MOST_LINES}"
    for name, length, at in functions(text) if functions else ():
        if length > MOST_OF_FUNCTION:
            yield f":{at}: {name} has {length} lines, more than {MOST_OF_FUNCTION}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    found = list(violations(root))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
