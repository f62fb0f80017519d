"""Which calls belong together: how each call of a program is named, and what is compared when
calls meet. docs/protocol.md says why.

A lowering rule notes on its custom call where the person made it. When JAX has lowered the whole
module, `_seal` gives every call its name and the digest of all: only then is known what the module
holds, and JAX copies what it lowered once and uses twice."""

import contextlib
import functools
import hashlib
import inspect
import math
import sys
import threading
from typing import NamedTuple

import numpy as np
from jax.interpreters import mlir

from oriel import _compat, _lib
from oriel._calls import order as _order
from oriel._calls import regions as _regions
from oriel._calls import windows as _windows
from oriel._collectives import groups as _groups
from oriel._memory import access as _access

ir = mlir.ir

_NOTES = (
    "oriel.place",
    _order.TAG,
    _order.RANKS,
    "oriel.platform",
    "oriel.sequence",
    "oriel.from_ranks",
    "oriel.from_sequence",
)  # on a custom call until it is sealed; the last two are of what a sendrecv receives
_FROM = "from_"  # before the names of its attributes
_WRITTEN = "name", "program", "told", "module"  # attributes that sealing adds
_CONFIG = "mhlo.backend_config"
_TRANSPOSED = " (transposed)"  # at the end of a place or a tag
_TOLD = ("reduce", "root", "pairs")  # attributes that messages show, as src/ffi/ffi.h says
# What has one shape on all ranks, where the other side's is larger at the root.
_ALIKE = {
    "oriel_gather": "operands",
    "oriel_scatter": "results",
    "oriel_send": "operands",
    "oriel_recv": "results",
}
_MOST_OPEN = 8  # modules that are being lowered at a time; of more, JAX gave the oldest up
_MOST_TYPES = 6  # of a call's operands that messages list: ragged_all_to_all has six
_MOST_LETTERS = 480  # of a call's description: as many as src/core/world/names.h keeps


# ---- how a call is made ----------------------------------------------------------


class Made(NamedTuple):
    """How a person made a call: a parameter of its primitive."""

    place: str  # "module:line", and what JAX derived from the call there
    tag: str | None = None  # of calls over ranks alone, as the two below
    effect: bool = False
    ordered: bool = False
    sequence: bool = False  # with the calls of its tag, which belong together in their order
    recvtag: str | None = None  # of what a sendrecv receives

    def derived(self, how):
        """The call that JAX derives from this one."""
        tag = self.tag and f"{self.tag} ({how})"
        recvtag = self.recvtag and f"{self.recvtag} ({how})"
        return self._replace(place=f"{self.place} ({how})", tag=tag, recvtag=recvtag)


class _Present(threading.local):
    made = None  # the call that is being made or derived
    bound = 0  # how often it has been so far
    ranks = ""  # of what is being lowered, where it is a call over ranks
    sources = ""  # of what it receives, where it is a sendrecv
    tokens = None  # of its ordered calls so far
    modules = ()  # that hold calls, and are not sealed


_present = _Present()


def present():
    return _present.made or Made(place("?"))


def bound():
    """The call, for what is bound now: the arrays of a pytree have tags of their own."""
    made, before = present(), _present.bound
    _present.bound += 1
    return made._replace(tag=nth(made.tag, before)) if made.tag else made


def nth(tag, i):
    """Of array i of a pytree."""
    return f"{tag}[{i}]" if i else tag


def place(name):
    """The module and the line that called oriel. No path: processes may have different ones. Where
    JAX itself traces oriel's function, there is no line but that from which it happened to be
    traced, which differs between processes: then the function's name."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "?")
        if module in _compat.TRACES:
            break
        if module.partition(".")[0] not in ("oriel", "jax", "contextlib"):
            return f"{module}:{frame.f_lineno}"
        frame = frame.f_back
    return f"oriel.{name}"


@contextlib.contextmanager
def making(made, bound=0):
    """What is bound within belongs to this call, of which so much is bound already."""
    before = _present.made, _present.bound
    _present.made, _present.bound = made, bound
    try:
        yield
    finally:
        _present.made, _present.bound = before


def operation(function):
    """Makes a public function one that takes `group`, `tag`, `effect` and `ordered` besides, and
    windows: as operands, and by `into` for its results, which `after` puts in an order."""
    own = inspect.signature(function)
    defaults = {"group": None, "tag": None, "effect": False, "ordered": False}
    windows = {"into": None, "after": None}

    @functools.wraps(function)
    def call(*args, into=None, after=None, **keywords):
        if into is None and after is None and not _access.has_handles(args, keywords):
            return make(args, keywords)
        # With into= it is the writing that is kept.
        effect = into is not None and bool(keywords.pop("effect", False))
        name = _name_of(function, args)
        return _access.through(name, make, args, keywords, into, after, effect)

    def make(args, keywords):
        given = {name: keywords.pop(name, default) for name, default in defaults.items()}
        group, tag = given["group"], given["tag"]
        if group is not None:
            args, keywords = _put_group(_name_of(function, args), own, group, args, keywords)
        if _present.made is not None:  # a part of another operation
            return function(*args, **keywords)
        if tag is not None and not (isinstance(tag, str) and tag):
            raise TypeError(f"oriel.{_name_of(function, args)}: tag must be a text, got {tag!r}")
        effect, ordered = bool(given["effect"]), bool(given["ordered"])
        with making(Made(place(function.__name__), tag, effect, ordered)):
            return function(*args, **keywords)

    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in {**defaults, **windows}.items()
    ]
    every = [*own.parameters.values(), *more]  # sorted: keywords without a name come last
    call.__signature__ = own.replace(parameters=sorted(every, key=lambda p: p.kind))
    return call


@contextlib.contextmanager
def message(name, group, tag, effect):
    """What is bound within is an end of a message: a call of a sequence, since the lines of its
    ends are two."""
    if _present.made is not None:  # a part of another operation
        yield
        return
    if not (isinstance(tag, str) and tag):
        raise TypeError(f"oriel.{name}: tag must be a text, got {tag!r}")
    tag = tag if group is None else f"{tag} in {group!r}"
    with making(Made(place(name), tag, bool(effect), sequence=True)):
        yield


def _name_of(function, args):
    """As messages have it: of a kernel, which is called by a method, the label."""
    return function.__name__ if function.__name__ != "__call__" else args[0]._label


def _put_group(name, signature, group, args, keywords):
    """A call's arguments, with the group in the place of axis_name."""
    parameters = list(signature.parameters.values())
    at = list(signature.parameters).index("axis_name")
    given = keywords.get("axis_name")
    if parameters[at].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and len(args) > at:
        group = _groups.chosen(name, args[at], group)
        return (*args[:at], group, *args[at + 1 :]), keywords
    return args, keywords | {"axis_name": _groups.chosen(name, given, group)}


def check(name, made, axes):
    if _groups.over_ranks(axes) or made.tag is None and not made.effect and not made.ordered:
        return
    given = "tag" if made.tag is not None else "effect" if made.effect else "ordered"
    raise ValueError(
        f"oriel.{name}: {given} is for calls over the whole world or a group; with "
        f"axis_name={_groups.names_of(axes)!r} calls belong together by their place in the program"
    )


# ---- the rules of a primitive ------------------------------------------------------


def remade(rule, how=None):
    """A rule that binds what it derives from a call."""

    @functools.wraps(rule)
    def run(*args, made, **params):
        with making(made.derived(how) if how else made):
            return rule(*args, **params)

    return run


def with_effects(abstract_eval):
    @functools.wraps(abstract_eval)
    def run(*avals, made, **params):
        result, effects = abstract_eval(*avals, **params)
        return result, effects | _compat.world_effects(made.effect, made.ordered)

    return run


def lowered(rule):
    """A lowering rule, whose custom call `note` describes and `ordered` orders."""

    @functools.wraps(rule)
    def run(ctx, *operands, made, **params):
        _present.tokens = ctx.tokens_in
        with making(made), over(params["axes"], params.get("source", ())):
            results = rule(ctx, *operands, **params)
        if made.ordered:
            ctx.set_tokens_out(_present.tokens)
        return results

    return run


@contextlib.contextmanager
def over(axes, source=()):
    """What is lowered within is a call over `axes`; a sendrecv receives over `source`."""
    before = _present.ranks, _present.sources
    _present.ranks, _present.sources = _groups.text_of(axes), _groups.text_of(source)
    try:
        yield
    finally:
        _present.ranks, _present.sources = before


@contextlib.contextmanager
def ordered(ctx, operands, aliases):
    """Puts the token of ordered calls before the operands and the results of a custom call."""
    if not present().ordered:
        yield ctx, operands, aliases, 0
        return
    token = _compat.abstract_token
    aliases = {i + 1: j + 1 for i, j in (aliases or {}).items()}
    avals = {"avals_in": [token, *ctx.avals_in], "avals_out": [token, *ctx.avals_out]}
    before = _compat.world_token(_present.tokens)
    yield ctx.replace(**avals), [before, *operands], aliases, 1


def without_token(results):
    if not present().ordered:
        return results
    token, *results = results
    _present.tokens = _compat.with_world_token(_present.tokens, token)
    return results


# ---- while a module is lowered ---------------------------------------------------


def watch(ctx):
    """The module is sealed when JAX has lowered all of it."""
    module = ctx.module_context.module
    if all(known is not module for known in _present.modules):
        _present.modules = (*_present.modules, module)
    _compat.call_when_lowered(_seal_lowered)


def note(ctx):
    """The attributes that tell `_seal` of a call, for its lowering rule to put on it."""
    watch(ctx)
    made = present()
    platform = ctx.module_context.platforms[0]
    tag = made.tag or ""
    named = ("", tag) if made.sequence else (tag, "")
    received = (made.recvtag or "") if _present.sources else ""
    values = (made.place, named[0], _present.ranks, platform, named[1], _present.sources, received)
    return {name: ir.StringAttr.get(value) for name, value in zip(_NOTES, values)}


def _seal_lowered():
    """JAX has lowered a module, or failed to: called by the thread that did. It may be one that
    JAX ran while it lowered another, which is not whole yet."""
    whole = [module for module in _present.modules if _is_whole(module)]
    rest = [module for module in _present.modules if module not in whole]
    _present.modules = tuple(rest[-_MOST_OPEN:])
    for module in whole:
        with module.context, ir.Location.unknown():
            _seal(module)


def _is_whole(module):
    """The return of its main function is the last thing that JAX writes."""
    for operation in module.body.operations:
        operation = operation.operation
        if operation.name == "func.func" and _order.text_of(operation, "sym_name") == "main":
            block = operation.regions[0].blocks[0]
            last = len(block.operations) - 1
            return last >= 0 and block.operations[last].operation.name == "func.return"
    return False


class _Call:
    """A custom call of oriel's in a module that has been lowered; of a sendrecv one of two, which
    are as those of send and recv."""

    def __init__(self, operation, half=None):
        self.operation = operation
        self.target = half or _order.text_of(operation, "call_target_name")
        notes = operation.attributes
        values = [ir.StringAttr(notes[name]).value for name in _NOTES]
        self.place, self.tag, self.ranks, self.platform, self.sequence, *received = values
        self.prefix = ""  # of its attributes
        if half == "oriel_recv":
            self.ranks, self.sequence = received
            self.prefix = _FROM
        self.ordinal = 0  # among the calls of its place, of its group
        self.turn = ""  # among the transposed calls of its sequence: "2 of 3"

    @property
    def name(self):
        """As messages have it."""
        return f"{self.place}#{self.ordinal + 1}" if self.ordinal else self.place

    def shape(self):
        """What it is called with, in full: for the digest."""
        target = self.target
        sides = [_ALIKE[target]] if target in _ALIKE else ["operands", "results"]
        types = [str(value.type) for side in sides for value in getattr(self.operation, side)]
        name = "" if self.tag else self.name  # calls with one tag may be at any place
        if self.sequence:  # those of a sequence, too
            name = self.turn
        target = "oriel_message" if target in ("oriel_send", "oriel_recv") else target
        return "\0".join((name, target, str(self._config()), *types))

    def _config(self):
        """Its attributes, as far as it is lowered with them."""
        given = _order.entries_of(ir.DictAttr(self.operation.attributes[_CONFIG]))
        if self.prefix:
            given["groups"] = given[f"{_FROM}groups"]
        kept = {n: v for n, v in given.items() if n not in _WRITTEN and not n.startswith(_FROM)}
        return ir.DictAttr.get(kept)

    def types(self):
        """Of its arrays, in short."""
        received = self.target == "oriel_recv"
        arrays = self.operation.results if received else self.operation.operands
        return _short_list([array.type for array in arrays])

    def way(self):
        """Of a message that is a permutation of its two ranks: who sends."""
        if self.target != "oriel_permute":
            return ""
        pairs = list(ir.DenseIntElementsAttr(self._config()["pairs"]))
        ends = self.ranks.split(",")
        return (
            ", both ways"
            if len(pairs) > 2
            else f", from rank {' to '.join(ends[i] for i in pairs)}"
        )

    def words(self):
        """The same in short: for messages."""
        given = _order.entries_of(self._config())
        more = [f" {name} {_short(given[name])}" for name in _TOLD if name in given]
        what = self.target.removeprefix("oriel_")
        return f"{what}{''.join(more)} of {self.types()} at {self.name}"


def _calls_in(operation):
    if _order.text_of(operation, "call_target_name") != "oriel_sendrecv":
        return [_Call(operation)]
    return [_Call(operation, half) for half in ("oriel_send", "oriel_recv")]


def _short(kind):
    return str(kind).removeprefix("tensor<").removesuffix(">").removesuffix(" : i64")


def _short_list(kinds):
    """Of many arrays how many there are, and how many elements of each type."""
    arrays = [kind for kind in kinds if isinstance(kind, ir.RankedTensorType)]
    if len(arrays) <= _MOST_TYPES:
        return ", ".join(map(_short, kinds))
    elements = {}
    for kind in arrays:
        name = str(kind.element_type)
        elements[name] = elements.get(name, 0) + math.prod(kind.shape)
    counts = ", ".join(f"{count} {name}" for name, count in elements.items())
    return f"{len(arrays)} arrays, {counts}"


def _seal(module):
    """Names every call of a module: no two of them alike, and on all processes the same."""
    calls = _find_calls(module)
    counts = {}
    for call in calls:
        key = call.place, call.ranks
        call.ordinal = counts.get(key, 0)
        counts[key] = call.ordinal + 1
    _count_transposed(calls)
    module_name = _order.text_of(module.operation, "sym_name")
    over_axes = [call for call in calls if not call.ranks]
    program = sorted(call.shape() for call in over_axes)
    said = "; ".join(call.words() for call in over_axes)
    executed = _number("executions", module_name, *program)
    for call in over_axes:
        named = _number("axes", module_name, call.name)
        told = f"{call.name}\n{module_name} calls {said}"
        _write(call, named, _number(*program), told, module=executed)
    for call in calls:
        if call.ranks:
            tag = ("tag", call.tag) if call.tag else ("place", call.name)
            tag = ("sequence", call.sequence) if call.sequence else tag
            shown = repr(tag[1])
            shown += f", {call.types()}{call.way()}" if call.sequence else ""
            shown += f", {call.turn} transposed" if call.turn else ""
            called = f" (tag {shown})" if call.tag or call.sequence else ""
            over = _groups.describe(call.ranks)
            called += "" if over == "the world" else f" over {over}"
            told = f"{call.name}{called}\n{module_name} calls over {over} {call.words()}"
            _write(call, _number("ranks", call.ranks, *tag), _number(call.shape()), told)
    _check_tags([call for call in calls if call.ranks and call.tag])
    windows = _windows.Order(module).check(_windows.fuse(module))
    # On GPUs calls are as XLA puts them on its stream, unless some are known by their order alone.
    if all(call.platform == "cpu" for call in calls) or any(call.sequence for call in calls):
        meets = any(call.sequence and call.target == "oriel_permute" for call in calls)
        _regions.order(module, ir.SymbolTable(module.operation), not meets, windows)
    for operation in _order.calls_of(module):
        for name in _NOTES:
            del operation.attributes[name]


def _count_transposed(calls):
    """A program transposes the calls of a sequence from the last to the first. Ranks that do not
    transpose as many of them together would take one for another: so this is compared."""
    sequences = {}
    for call in calls:
        if call.sequence.endswith(_TRANSPOSED):
            sequences.setdefault((call.ranks, call.sequence), []).append(call)
    for some in sequences.values():
        for i, call in enumerate(some):
            call.turn = f"{i + 1} of {len(some)}"


def _number(*words):
    """The same on all processes, as hash() would not be."""
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def _write(call, named, program, told, **more):
    text = told.encode(errors="replace")
    if len(text) > _MOST_LETTERS:  # what was cut off shows in a number
        end = f"... ({program:016x})".encode()
        text = text[: _MOST_LETTERS - len(end)] + end
    numbers = {"name": named, "program": program, "told": letters(text)} | more
    _configure(call.operation, **{call.prefix + name: value for name, value in numbers.items()})
    _lib.load().oriel_ffi_lowered(named)


def _configure(operation, **numbers):
    """Adds attributes that src/ffi reads."""
    entries = _order.entries_of(ir.DictAttr(operation.attributes[_CONFIG]))
    entries |= {name: mlir.ir_attribute(as_attribute(v)) for name, v in numbers.items()}
    operation.attributes[_CONFIG] = ir.DictAttr.get(entries)


def as_attribute(value):
    """Whole numbers as src/ffi takes them."""
    array = np.ascontiguousarray(value, np.int64)
    return array.ravel() if array.size != 1 or np.ndim(value) else np.int64(value)


def letters(text):
    """Bytes, eight in each number."""
    text += b"\0" * (-len(text) % 8)
    return [int.from_bytes(text[i : i + 8], "little", signed=True) for i in range(0, len(text), 8)]


# ---- the calls of a module ---------------------------------------------------------


def _find_calls(module):
    """All calls that run, in the order of the program. A function that holds some and is called
    several times becomes several functions first: XLA would make them by copying, and nothing
    would tell the copies of a call apart."""
    functions = _Functions(module)
    calls = []
    for name in list(functions.roots):
        functions.visit(name, calls)
    return calls


class _Functions:
    def __init__(self, module):
        self._table = ir.SymbolTable(module.operation)
        self._found = {}  # name -> the calls of oriel and of functions in it, in their order
        self._visited = set()
        for operation in module.body.operations:
            if operation.operation.name == "func.func":
                self._look(operation.operation)
        called = {callee for found in self._found.values() for _, callee in found if callee}
        self.roots = [name for name in self._found if name not in called]
        self._holders = set()
        for name in self._found:
            self._holds(name, set())

    def _look(self, function):
        name = _order.text_of(function, "sym_name")
        found = self._found[name] = []

        def see(operation):
            if operation.name == "func.call":
                callee = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
                found.append((operation, callee))
            elif operation.name == "stablehlo.custom_call" and _NOTES[0] in operation.attributes:
                found.append((operation, None))
            return ir.WalkResult.ADVANCE

        function.walk(see, ir.WalkOrder.PRE_ORDER)
        return name

    def _holds(self, name, above):
        """Whether a function or one that it calls has a call of oriel's."""
        if name not in self._holders and name not in above:
            found = self._found.get(name, ())
            if any(callee is None or self._holds(callee, above | {name}) for _, callee in found):
                self._holders.add(name)
        return name in self._holders

    def visit(self, name, calls):
        self._visited.add(name)
        for operation, callee in self._found[name]:
            if callee is None:
                calls.extend(_calls_in(operation))
            elif callee in self._holders:
                if callee in self._visited:
                    callee = self._copy(callee)
                    operation.attributes["callee"] = ir.FlatSymbolRefAttr.get(callee)
                self.visit(callee, calls)

    def _copy(self, name):
        original = self._table[name]
        copy = original.operation.clone(ir.InsertionPoint(original))
        self._table.insert(copy)  # under a name of its own
        copied = self._look(copy.operation)
        self._holders.add(copied)
        return copied


# ---- tags that a program uses more than once ------------------------------------------


def _check_tags(calls):
    """The order of calls with one tag must be that of the program, and plain to see."""
    last = {}
    for call in calls:
        before = last.get((call.tag, call.ranks))
        if before is not None and call.tag.endswith(_TRANSPOSED):
            raise ValueError(
                f"oriel: calls with one tag are transposed in this program, from the last to the "
                f"first, which other programs need not do: give them tags of their own "
                f"({call.words()})"
            )
        if before is not None and before.block != call.operation.block:
            raise ValueError(
                f"oriel: tag {call.tag!r} names several calls of one program, of which one is "
                f"inside a function, loop or branch and another is not: nothing says which is "
                f"first. Give them tags of their own ({call.words()})"
            )
        last[call.tag, call.ranks] = call.operation
