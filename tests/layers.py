"""Fails on code that reaches against the rooms.

SEES is the whole truth about which room may include which: a room, a folder of src, sees
itself, base, the public headers and what its row names. A file declares functions
and data of its own room alone: a file that wants another's includes its header. No fabric
names another: a table is named where it is made, and in fabrics.c, of src/fabric for
host memory, of src/core/start for that of devices. Names of XLA stand in src/ffi
alone. Python uses what the library exports and nothing else. Comments may speak of
anything.
"""

import re
import sys
from pathlib import Path

WORLD = ["fabric", "core/heap", "core/world"]
HOST = [*WORLD, "core/protocol"]
GPUS = ["core/device", "core/nccl"]
LIBRARIES = ["fabric/cuda", "fabric/nccl"]

SEES = {
    "base": [],
    "fabric": [],
    "fabric/cuda": [],
    "fabric/nccl": ["fabric/cuda"],
    "core/store": [],
    "core/heap": ["fabric"],
    "core/world": ["fabric", "core/heap", "core/store"],
    "core/protocol": WORLD,
    "core/memory": WORLD,
    "core/machines": [*WORLD, "core/store"],
    "core/device": [*WORLD, "fabric/cuda"],
    "core/nccl": [*WORLD, *LIBRARIES, "core/device"],
    "core/start": [*HOST, "core/store", "core/memory", "core/machines", *GPUS],
    "experimental": [*WORLD, *LIBRARIES, *GPUS],
    "ops/reduce": [],
    "ops": [*HOST, "core/device", "ops/reduce"],
    "ops/host": [*HOST, "core/memory", "ops", "ops/reduce"],
    "ops/kernel": [*HOST, "core/memory", "ops", "ops/host", "ops/reduce"],
    "ops/cuda": [*HOST, "fabric/cuda", *GPUS, "experimental", "ops", "ops/kernel", "ops/reduce"],
    "ffi": [*HOST, "core/memory", *LIBRARIES, *GPUS, "ops", "ops/host", "ops/kernel", "ops/cuda"],
    "tools": [
        *("core/world", "core/store", "core/protocol", "core/memory", "core/start", "ops"),
        *LIBRARIES,
    ],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
# At the beginning of a line: a function, or else data.
BEFORE = r"^(?!static|typedef|return|else)(?:[A-Za-z_]\w*[\s*]+)+"
DEFINITION = re.compile(
    BEFORE + r"(\w+)\([^;{}]*\)\s*\{|" + BEFORE + r"(\w+)(?:\[[^]]*\])* =", re.M
)
DECLARATION = re.compile(
    BEFORE + r"(\w+)\([^;{}]*\)[^;{}]*;|^extern [^;{}(]*?(\w+)(?:\[[^]]*\])*;", re.M
)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
XLA_NAME = re.compile(r"\b(XLA_\w+|xla[_/]\w+|PJRT_\w+)")
FABRIC_NAME = re.compile(r"\boriel_(?:fabric|device)_[a-z]+\b")
LIBRARY_CALL = re.compile(r"\b_?(?:lib|LIB|library)\.(oriel_\w+)")


def code_of(path):
    return COMMENT.sub(" ", path.read_text())


def c_files(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".h"))


def room_of(folder):
    """The innermost room that a folder of src, as text, belongs to; None: none."""
    while folder and folder not in SEES:
        folder = folder.rpartition("/")[0]
    return folder or None


def room_of_file(root, path):
    if (root / "tools") in path.parents:
        return "tools"
    return room_of(path.relative_to(root / "src").parent.as_posix())


def check_includes(root, path):
    """Yields a sentence for each include of what the file's room does not see."""
    room = room_of_file(root, path)
    for name in INCLUDE.findall(code_of(path)):
        other = room_of(name.rpartition("/")[0])
        own = room == "tools" and (root / "tools" / name).exists()
        if own or name.startswith("oriel/"):
            continue
        if other is None:
            yield f'includes "{name}", which is in no room'
        elif other not in ("base", room, *SEES[room]):
            yield f'includes "{name}": {room} does not see {other}'


def defined_names(root):
    """Room of each function and datum that a file of src defines for others."""
    return {
        first or second: room_of_file(root, path)
        for path in c_files(root / "src")
        if path.suffix == ".c"
        for first, second in DEFINITION.findall(code_of(path))
    }


# Declared below, defined above: the one way up, and it has a name.
HOOKS = {"oriel_experimental_hook"}


def check_declarations(root, path, rooms):
    """Yields a sentence for each declaration of what another room defines."""
    room = room_of_file(root, path)
    for first, second in DECLARATION.findall(code_of(path)):
        name = first or second
        if rooms.get(name, room) != room and name not in HOOKS:
            yield f"declares {name}, which {rooms[name]} defines"


def fabric_tables(root):
    """The file that makes each fabric's table."""
    table = re.compile(r"^const oriel_(?:device_)?fabric (oriel_\w+) =", re.M)
    return {name: path for path in c_files(root / "src") for name in table.findall(code_of(path))}


def check_fabric_names(path, tables):
    """Yields a sentence for each fabric that is named where it should not be."""
    code = code_of(path)
    for name in sorted(set(FABRIC_NAME.findall(code)) & tables.keys()):
        made = tables[name]
        declares = path.suffix == ".h" and path.parent == made.parent
        if path != made and not declares and path.name != "fabrics.c":
            yield f"names the fabric {name}; only fabrics.c does"
    if path.parent.name != "fabric" or path.name == "fabrics.c":
        return
    headers = {f"fabric/{made.stem}.h" for made in set(tables.values()) - {path}}
    for name in sorted(headers & set(INCLUDE.findall(code))):
        yield f'includes "{name}", the header of another fabric'


def check_xla(path):
    found = XLA_NAME.search(code_of(path))
    if found:
        yield f"uses {found.group(1)}; names of XLA belong in src/ffi"


def check_python(path, exported):
    for name in sorted(set(LIBRARY_CALL.findall(path.read_text())) - exported):
        yield f"calls {name}, which the library does not export"


def violations(root):
    tables = fabric_tables(root)
    rooms = defined_names(root)
    for path in c_files(root / "src"):
        yield from ((path, text) for text in check_includes(root, path))
        yield from ((path, text) for text in check_declarations(root, path, rooms))
        yield from ((path, text) for text in check_fabric_names(path, tables))
        if path.relative_to(root).parts[1] != "ffi":
            yield from ((path, text) for text in check_xla(path))
    for path in c_files(root / "tools"):
        yield from ((path, text) for text in check_includes(root, path))
        yield from ((path, text) for text in check_declarations(root, path, rooms))
        yield from ((path, text) for text in check_fabric_names(path, tables))
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
