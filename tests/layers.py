"""Fails on code that reaches against the layers.

    src/base <- src/fabric <- src/core <- src/ops <- src/ffi

A file includes only its own layer and those below it. No fabric names another;
only src/fabric/fabrics.c names them all. tools/ uses the public header, base
and core. Names of XLA stand in src/ffi alone. Python uses what the library
exports and nothing else. Comments may speak of anything.
"""

import re
import sys
from pathlib import Path

LAYERS = ["base", "fabric", "core", "ops", "ffi"]
TOOLS_MAY_USE = ["base", "core", "fabric/cuda"]

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
XLA_NAME = re.compile(r"\b(XLA_\w+|xla[_/]\w+|PJRT_\w+)")
FABRIC_NAME = re.compile(r"\boriel_fabric_([a-z]+)\b")
LIBRARY_CALL = re.compile(r"\b_?(?:lib|LIB|library)\.(oriel_\w+)")


def code_of(path):
    return COMMENT.sub(" ", path.read_text())


def c_files(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".h"))


def check_includes(root, path):
    """Yields a sentence for each include that goes up or leaves the tree."""
    layer = path.relative_to(root / "src").parts[0]
    for name in INCLUDE.findall(code_of(path)):
        first = name.split("/")[0]
        if first == "oriel":
            continue
        if first not in LAYERS:
            yield f'includes "{name}", which names no layer'
        elif LAYERS.index(first) > LAYERS.index(layer):
            yield f'includes "{name}": {first} lies above {layer}'


def fabric_names(root):
    """The fabrics, by the tables they define."""
    table = re.compile(r"^const oriel_fabric oriel_fabric_([a-z]+) =", re.M)
    return {
        name for path in c_files(root / "src" / "fabric") for name in table.findall(code_of(path))
    }


def check_fabric_names(path, fabrics):
    """Yields a sentence for each fabric that is named where it should not be."""
    own = path.stem
    if path.parent.name == "fabric" and own in ("fabric", "fabrics"):
        return
    for name in sorted(set(FABRIC_NAME.findall(code_of(path))) & fabrics):
        if not (path.parent.name == "fabric" and own == name):
            yield f"names the fabric {name}; only fabrics.c does"
    if path.parent.name != "fabric":
        return
    for name in INCLUDE.findall(code_of(path)):
        other = name.removeprefix("fabric/").removesuffix(".h")
        if name.startswith("fabric/") and other in fabrics - {own}:
            yield f'includes "{name}", the header of another fabric'


def check_xla(path):
    found = XLA_NAME.search(code_of(path))
    if found:
        yield f"uses {found.group(1)}; names of XLA belong in src/ffi"


def check_tool(root, path):
    for name in INCLUDE.findall(code_of(path)):
        first = name.split("/")[0]
        room = "/".join(name.split("/")[:2])
        own = (root / "tools" / name).exists()
        if first != "oriel" and not {first, room} & set(TOOLS_MAY_USE) and not own:
            yield f'includes "{name}": tools use the public header, base and core'


def check_python(path, exported):
    for name in sorted(set(LIBRARY_CALL.findall(path.read_text())) - exported):
        yield f"calls {name}, which the library does not export"


def violations(root):
    fabrics = fabric_names(root)
    for path in c_files(root / "src"):
        yield from ((path, text) for text in check_includes(root, path))
        yield from ((path, text) for text in check_fabric_names(path, fabrics))
        if path.relative_to(root).parts[1] != "ffi":
            yield from ((path, text) for text in check_xla(path))
    for path in c_files(root / "tools"):
        yield from ((path, text) for text in check_tool(root, path))
        yield from ((path, text) for text in check_fabric_names(path, fabrics))
        yield from ((path, text) for text in check_xla(path))
    for path in c_files(root / "include"):
        yield from ((path, text) for text in check_xla(path))
    exported = set(re.findall(r"\b(oriel_\w+);", (root / "src" / "oriel.map").read_text()))
    for path in sorted((root / "python").rglob("*.py")):
        yield from ((path, text) for text in check_python(path, exported))


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    found = list(violations(root))
    for path, text in found:
        print(f"{path.relative_to(root)}: {text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
