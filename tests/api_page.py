"""Fails unless docs/api.md names everything that is public: what the header marks
ORIEL_API, its statuses, dtypes, reductions and _INIT macros, oriel's __all__, and
the options. Links between pages must lead somewhere.

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


def header_names():
    text = (ROOT / "include" / "oriel" / "oriel.h").read_text()
    code = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    constants = set(re.findall(r"^\s+(ORIEL_\w+) = \d", code, re.M))
    macros = set(re.findall(r"#define (ORIEL_\w+_INIT)\b", code))
    return set(DECLARED.findall(code)) | macros | {
        name for name in constants - RANGES if not name.endswith("_COUNT")}


def python_names():
    tree = ast.parse((ROOT / "python" / "oriel" / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return {f"oriel.{name}" for name in ast.literal_eval(node.value)}
    raise SystemExit("python/oriel/__init__.py has no __all__")


def option_names():
    text = (ROOT / "src" / "base" / "config.c").read_text()
    return set(re.findall(r'\.name = "(ORIEL_\w+)"', text))


def missing_names(page):
    names = header_names() | python_names() | option_names()
    return sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", page))


def anchors(page):
    """As GitHub makes them of headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.M)}


def broken_links(page):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            yield target


def main():
    complaints = [f"{PAGE.relative_to(ROOT)} does not name {name}"
                  for name in missing_names(PAGE.read_text())]
    for page in PAGES:
        complaints += [f"{page.relative_to(ROOT)}: {target} leads nowhere"
                       for target in broken_links(page)]
    print("\n".join(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
