"""The author's side of a kernel: its file, and what its signatures say."""

import dataclasses
import hashlib
import pathlib
import re

from oriel._lib import OrielError, Status

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
# In a wheel; in a source tree.
_INCLUDES = (_PACKAGE / "include", _PACKAGE.parents[1] / "include")

# Types in C: elements of operands and results.
ELEMENTS = {
    "bool": "bool",
    "int8_t": "int8",
    "int16_t": "int16",
    "int32_t": "int32",
    "int": "int32",
    "int64_t": "int64",
    "uint8_t": "uint8",
    "uint16_t": "uint16",
    "uint32_t": "uint32",
    "uint64_t": "uint64",
    "oriel_f16": "float16",
    "oriel_bf16": "bfloat16",
    "float": "float32",
    "double": "float64",
}
INTEGERS = {  # attributes
    "bool": (0, 1),
    "int": (-(2**31), 2**31 - 1),
    "size_t": (0, 2**63 - 1),
    "uint64_t": (0, 2**63 - 1),
    "int64_t": (-(2**63), 2**63 - 1),
    **{f"int{n}_t": (-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (8, 16, 32)},
    **{f"uint{n}_t": (0, 2**n - 1) for n in (8, 16, 32)},
}
REALS = ("float", "double")
RESERVED = ("axis_name", "effect", "group", "ordered", "out", "replicated", "tag")

_KERNEL = re.compile(r"\bORIEL_KERNEL\s*\(\s*(\w*)\s*\)\s*\(")
_PARAMETER = re.compile(r"(?:(const)\s+)?(\w+)\s*(?:(\*)\s*|\s)(?:const\s+)?(\w+)")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)
_HEADER = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(oriel/(?:experimental/)?kernel\w*\.h)>", re.M)
_NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"""|^[ \t]*\#(?:\\\n|[^\n])*""",
    re.S | re.M,
)


@dataclasses.dataclass(frozen=True)
class Parameter:
    name: str
    type: str  # as the author wrote it
    kind: str  # operand, result, integer, real or string
    index: int  # among the operands, the results, or the attributes

    @property
    def dtype(self):
        return ELEMENTS[self.type]


@dataclasses.dataclass(frozen=True)
class Signature:
    name: str
    line: int
    parameters: tuple

    def of(self, *kinds):
        return [p for p in self.parameters if p.kind in kinds]

    @property
    def operands(self):
        return self.of("operand")

    @property
    def results(self):
        return self.of("result")

    @property
    def attributes(self):
        return self.of("integer", "real", "string")

    def entry(self):
        """The way in, for the host and for CUDA: see ORIEL_ENTRY in kernel_entry.h."""
        arguments = ["team"] + [self._argument(p) for p in self.parameters]
        return f"ORIEL_ENTRY({self.name}, {self.name}({', '.join(arguments)}))"

    def _argument(self, p):
        if p.kind == "operand":
            return f"ORIEL_ARG_BUFFER(const {p.type} *, {p.index})"
        if p.kind == "result":
            return f"ORIEL_ARG_BUFFER({p.type} *, {len(self.operands) + p.index})"
        return f"ORIEL_ARG_{p.kind.upper()}({p.type}, {p.index})"


@dataclasses.dataclass(frozen=True)
class Source:
    path: pathlib.Path
    defines: tuple  # (name, value), ...
    flags: tuple  # more words for the C compiler
    signatures: tuple
    headers: tuple  # of oriel's, for kernels, as the author includes them
    digest: bytes  # of everything the author wrote: equal on all processes

    def number(self, signature):
        """What all processes call this kernel."""
        said = hashlib.sha256(self.digest + signature.name.encode()).digest()
        return int.from_bytes(said[:8], "little") >> 1

    def unit(self):
        """What a compiler is given: the author's file, and the ways in. What the caller
        defines comes after oriel's headers, which may use the same names."""
        lines = [f"#include <{name}>" for name in (*self.headers, "oriel/kernel.h")]
        lines += [f"#define {name} {value}" for name, value in self.defines]
        lines += [f'#include "{self.path}"', '#line 1 "(the way in that oriel generates)"']
        return "\n".join([*lines, *(s.entry() for s in self.signatures), ""])


def include_folder():
    for folder in _INCLUDES:
        if (folder / "oriel" / "kernel.h").exists():
            return folder
    raise OrielError(
        f"no oriel/kernel.h in {' or '.join(map(str, _INCLUDES))}: install the oriel package",
        Status.SYSTEM,
    )


def read(path, defines=None, flags=()):
    """The source at `path`, parsed."""
    if isinstance(flags, str):
        raise TypeError(f"flags is a list of words, got {flags!r}")
    if defines is not None and not hasattr(defines, "items"):
        raise TypeError(f"defines is a dict of macros by name, got {defines!r}")
    flags = tuple(map(str, flags))
    path = pathlib.Path(path).resolve()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise OrielError(f"{path} cannot be read: {why}", Status.INVALID) from None
    defines = tuple(sorted((str(k), str(v)) for k, v in (defines or {}).items()))
    for name, _ in defines:
        if not name.isidentifier():
            raise ValueError(f"defines: {name!r} is no name in C")
    signatures = _parse(path, text, dict(defines))
    headers = sorted((include_folder() / "oriel").rglob("*.h"))
    parts = [header.read_bytes() for header in headers]
    files = _closure(path, text, _folders(flags))
    parts += [repr((defines, flags)).encode(), *(text.encode() for text in files)]
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
    named = tuple(name for text in files for name in _HEADER.findall(text))
    return Source(path, defines, flags, signatures, named, digest)


def _folders(flags):
    """What -I names."""
    words = iter(flags)
    named = (next(words, "") if word == "-I" else word[2:] for word in words if word[:2] == "-I")
    return [pathlib.Path(folder) for folder in named]


def _closure(path, text, folders):
    """The file and what it includes with quotes, each once."""
    seen, todo = {path: text}, [(path, text)]
    while todo:
        where, text = todo.pop()
        for name in _INCLUDE.findall(text):
            places = ((folder / name).resolve() for folder in (where.parent, *folders))
            other = next(filter(pathlib.Path.is_file, places), None)
            if other is not None and other not in seen:
                seen[other] = other.read_text(errors="replace")
                todo.append((other, seen[other]))
    return seen.values()


# ---- signatures ----------------------------------------------------------------


def _parse(path, text, defines):
    """Every kernel of the file. Comments, strings and directives become blanks of
    the same length, so that places stay what they are."""
    conditions = []  # where each begins (1) or ends (-1)

    def blank(m):
        directive = re.match(r"[ \t]*#[ \t]*(if|endif)", m[0])
        if directive:
            conditions.append((m.start(), 1 if directive[1] == "if" else -1))
        return re.sub(r"[^\n]", " ", m[0])

    code = _NO_CODE.sub(blank, text)
    signatures = []
    for match in _KERNEL.finditer(code):
        line = code.count("\n", 0, match.start()) + 1
        end = code.find(")", match.end())
        if not match[1] or end < 0:
            raise _wrong(path, line, "ORIEL_KERNEL needs a name and parameters")
        if sum(step for at, step in conditions if at < match.start()) > 0:
            raise _wrong(
                path,
                line,
                f"kernel {match[1]} is inside #if: kernels are found before "
                "the preprocessor runs; put the condition into the body",
            )
        if any(s.name == match[1] for s in signatures):
            raise _wrong(path, line, f"there are two kernels {match[1]}")
        signatures.append(Signature(match[1], line, _parameters(path, code, match, end, defines)))
    if not signatures:
        raise OrielError(f"{path} has no kernel: nothing says ORIEL_KERNEL(name)", Status.INVALID)
    for signature in signatures:
        for kind in ("operand", "result"):
            if not signature.of(kind):
                raise _wrong(path, signature.line, f"kernel {signature.name} has no {kind}")
    return tuple(signatures)


def _wrong(path, line, what):
    return OrielError(f"{path}:{line}: {what}", Status.INVALID)


def _parameters(path, code, match, end, defines):
    kernel, at, found = match[1], match.end(), []
    counts = {"operand": 0, "result": 0, "attribute": 0}
    for i, text in enumerate(code[match.end() : end].split(",")):
        line = code.count("\n", 0, at + len(text) - len(text.lstrip())) + 1
        at += len(text) + 1
        words = " ".join(text.split())
        fields = _PARAMETER.fullmatch(words)
        if i == 0:
            if not fields or fields.groups()[:3] != (None, "oriel_team", "*"):
                raise _wrong(
                    path,
                    line,
                    f"kernel {kernel}: the first parameter is 'oriel_team *team', not {words!r}",
                )
            continue
        kind, type_ = _kind(fields, defines) if fields else (None, None)
        if kind is None:
            raise _wrong(
                path,
                line,
                f"kernel {kernel}: {words!r} is no parameter of a kernel. It takes 'const T *name' "
                f"(an operand) and 'T *name' (a result) with T one of {', '.join(ELEMENTS)}; and "
                f"as attributes {', '.join([*INTEGERS, *REALS])} and 'const char *name'",
            )
        name = fields[4]
        if name in RESERVED or any(p.name == name for p in found):
            raise _wrong(path, line, f"kernel {kernel}: {name!r} is taken; choose another name")
        counted = kind if kind in counts else "attribute"
        found.append(Parameter(name, type_, kind, counts[counted]))
        counts[counted] += 1
    return tuple(found)


def _kind(fields, defines):
    const, type_, star, _ = fields.groups()
    type_ = defines.get(type_, type_)
    if star and const and type_ == "char":
        return "string", type_
    if star and type_ in ELEMENTS:
        return ("operand" if const else "result"), type_
    if not star and type_ in INTEGERS:
        return "integer", type_
    if not star and type_ in REALS:
        return "real", type_
    return None, None
