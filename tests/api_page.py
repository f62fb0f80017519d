"""Fails unless docs/api.md names everything that is public: what the header marks
ORIEL_API, its statuses, dtypes, reductions and _INIT macros, oriel's __all__, and
the options. Signatures that it gives must be those of the code, in both languages;
so must those in python/oriel/__init__.pyi, which has all of Python's.
On all pages links must lead somewhere, and quotations must be true.

    python3 tests/api_page.py
"""

import ast
import re
import sys

from exports import DECLARED, ROOT

PAGE = ROOT / "docs" / "api.md"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
# Where a name stands for several.
RANGES = {f"ORIEL_{kind}{bits}" for kind in "SU" for bits in (16, 32)}


def without_comments(code):
    return re.sub(r"/\*.*?\*/", " ", code, flags=re.S)


def header():
    return without_comments((ROOT / "include" / "oriel" / "oriel.h").read_text())


def header_names():
    code = header()
    constants = set(re.findall(r"^\s+(ORIEL_\w+) = \d", code, re.M))
    macros = set(re.findall(r"#define (ORIEL_\w+_INIT)\b", code))
    return (
        set(DECLARED.findall(code))
        | macros
        | {name for name in constants - RANGES if not name.endswith("_COUNT")}
    )


def python_names():
    tree = ast.parse((ROOT / "python" / "oriel" / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return {f"oriel.{name}" for name in ast.literal_eval(node.value)}
    raise SystemExit("python/oriel/__init__.py has no __all__")


def option_names():
    text = (ROOT / "src" / "base" / "config.c").read_text()
    return {
        "ORIEL_" + name for name in re.findall(r"^    (?:NUMBER|CHOICE|TEXT)\((\w+),", text, re.M)
    }


def missing_names(page):
    names = header_names() | python_names() | option_names()
    return sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", page))


# ---- signatures ----------------------------------------------------------------


def code_blocks(page, language):
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S))


def prototypes(code):
    """name: parameters, of those that give types."""
    found = re.findall(r"\b(oriel_\w+)\(([^()]*)\);", without_comments(code))
    return {name: " ".join(text.split()) for name, text in found if " " in text}


def functions_of(path):
    return [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]


def python_functions():
    """Those of the package, from the modules that it imports them from."""
    tree = ast.parse((ROOT / "python" / "oriel" / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            path = ROOT / "python" / node.module.replace(".", "/")
            names = {alias.name for alias in node.names}
            module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            yield from (f for f in functions_of(module) if f.name in names)


def python_signatures():
    """name: parameters, of the functions of the package."""
    return {function.name: ast.unparse(function.args) for function in python_functions()}


def shown_signatures(page):
    calls = re.findall(r"^oriel\.(\w+)\(([^()]+)\)", code_blocks(page, "python"), re.M)
    return {
        name: ast.unparse(ast.parse(f"def f({text}): pass").body[0].args) for name, text in calls
    }


def wrong_signatures(page):
    pairs = [
        (prototypes(code_blocks(page, "c")), prototypes(header())),
        (shown_signatures(page), python_signatures()),
    ]
    for shown, real in pairs:
        for name, parameters in shown.items():
            if name in real and parameters != real[name]:
                yield f"{name}({parameters}) is in fact {name}({real[name]})"


# ---- types ---------------------------------------------------------------------


def is_operation(function):
    """Whether python/oriel/_calls gives it parameters of its own."""
    return any(ast.unparse(word) == "_calls.operation" for word in function.decorator_list)


def operation_keywords():
    """name: default"""
    (decorator,) = (
        function
        for function in functions_of(ROOT / "python" / "oriel" / "_calls" / "__init__.py")
        if function.name == "operation"
    )
    found = {}
    for node in decorator.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("defaults", "windows"):
            found |= {name: repr(value) for name, value in ast.literal_eval(node.value).items()}
    if not found:
        raise SystemExit("python/oriel/_calls has no defaults in operation")
    return found


def named_parameters(function):
    """(kind, name, default) of each."""
    arguments = function.args
    known = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(known) - len(arguments.defaults)) + arguments.defaults
    found = [("any", *pair) for pair in zip(known, defaults)]
    found += [("keyword", *pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return [(kind, a.arg, default and ast.unparse(default)) for kind, a, default in found]


def wrong_types():
    """Names and parameters that python/oriel/__init__.pyi has otherwise than the code."""
    more = [("keyword", name, default) for name, default in operation_keywords().items()]
    real = {
        function.name: named_parameters(function) + (more if is_operation(function) else [])
        for function in python_functions()
    }
    stub = ROOT / "python" / "oriel" / "__init__.pyi"
    typed = {function.name: named_parameters(function) for function in functions_of(stub)}
    for name in sorted(real.keys() | typed.keys()):
        if real.get(name) != typed.get(name):
            yield f"{name}{typed.get(name)} is in fact {name}{real.get(name)}"


# ---- links ---------------------------------------------------------------------


def anchors(page):
    """As GitHub makes them of headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    }


def broken_links(page):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            yield target


# ---- quotations ----------------------------------------------------------------


def false_quotations(page):
    """A block that begins with ```python examples/x.py has lines of that file, in their
    order; "..." leaves some out."""
    for name, text in re.findall(r"^```\w+ (\S+)\n(.*?)^```", page.read_text(), re.M | re.S):
        place = ROOT / name
        left = iter(place.read_text().splitlines() if place.is_file() else [])
        for line in filter(None, map(str.strip, text.splitlines())):
            if line != "..." and line not in map(str.strip, left):
                yield f"{name} has no line {line!r}, or not there"
                break


def main():
    text = PAGE.read_text()
    complaints = [f"docs/api.md does not name {name}" for name in missing_names(text)]
    complaints += [f"docs/api.md: {problem}" for problem in wrong_signatures(text)]
    complaints += [f"python/oriel/__init__.pyi: {problem}" for problem in wrong_types()]
    for page in PAGES:
        complaints += [
            f"{page.relative_to(ROOT)}: {target} leads nowhere" for target in broken_links(page)
        ]
        complaints += [f"{page.relative_to(ROOT)}: {problem}" for problem in false_quotations(page)]
    print("\n".join(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
