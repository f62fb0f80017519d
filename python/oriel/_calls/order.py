"""The order of a program's calls. XLA knows no order of custom calls but that of their data, and
where a rank's program has something else around them it may put them in another one. Ranks that
start them one after the other would wait for each other. So each call takes a result of the call
before it as an operand that it does not read: the order of the program, on all ranks. A call that
was given a tag comes after the one before it of that tag alone.

On GPUs calls are in the order in which XLA puts them on its stream. Where a program has some that
other ranks make elsewhere, in their order, all are put in that of the program, too.

Inner functions, loops and branches are entered and left by a call that hands its operand on, and
comes after another value (`oriel_after`). All this is about the arrays of one device; regions.py
has what lies between them, where XLA still divides arrays among devices."""

import math

import numpy as np
from jax.interpreters import mlir

from oriel import _compat

ir = mlir.ir

AFTER = "oriel_after"
# Attributes of calls: the tag that a person gave, or ""; who calls, where that is not said by axes.
TAG, RANKS = "oriel.tag", "oriel.ranks"
_CONFIG = "mhlo.backend_config"
_ELEMENTS = ("f16", "bf16", "f32", "f64", "i1", "i8", "i16", "i32", "i64", "ui8", "ui32", "ui64")


def text_of(operation, attribute):
    return ir.StringAttr(operation.attributes[attribute]).value


def calls_of(module):
    """All of a module, those in functions that nobody calls too."""
    found = []

    def see(operation):
        if is_call(operation):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(see, ir.WalkOrder.PRE_ORDER)
    return found


def is_call(operation):
    """One that a lowering rule has noted: others may be made by hand."""
    return operation.name == "stablehlo.custom_call" and TAG in operation.attributes


class Calls:
    """`table`: the functions of the module; those that hold calls are called once. `tags`: calls
    with a tag have an order of their own. `windows`: values that nothing may copy."""

    def __init__(self, table, tags=True, windows=()):
        self._table, self._tags, self._windows = table, tags, windows
        self._holds = {}  # names of functions

    def _body(self, operation):
        name = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
        return name, self._table[name].operation.regions[0].blocks[0]

    def holders(self, block):
        """The operations of a block that are calls or hold some, in their order."""
        found = []
        for operation in block.operations:
            operation = operation.operation
            if is_call(operation):
                found.append(operation)
            elif operation.name == "func.call":
                name, body = self._body(operation)
                if name not in self._holds:
                    self._holds[name] = False  # where it calls itself
                    self._holds[name] = bool(self.holders(body))
                if self._holds[name]:
                    found.append(operation)
            elif any(self.holders(inner) for inner in blocks_of(operation)):
                found.append(operation)
        return found

    def chain(self, block, before, local):
        """Puts the calls of a block in their order, after a value or None. Returns one that is
        there when the last has been made."""
        tags = {}  # a result of the last call with a tag, whose calls of one group have one block
        for operation in self.holders(block):
            if is_call(operation) and self._tags and (tag := text_of(operation, TAG)):
                tags[tag] = _put(operation, tags.get(tag))
            elif is_call(operation):
                before = _put(operation, before if local and is_effect(operation) else None)
            elif operation.name == "sdy.manual_computation":
                inner = blocks_of(operation)[0]
                self.chain(inner, None, self.is_local(inner))
            else:
                before = self._pass(operation, before, local)
        return before

    def function(self, call):
        """The function that is called, and its block."""
        name, block = self._body(call)
        return self._table[name].operation, block

    def is_local(self, block):
        """Whether XLA divides none of what the block has."""
        return all(map(is_effect, self._calls_in(block)))

    def hand_on_after(self, block, first):
        """Puts the calls of a block after a value. Returns it, once they have been made."""
        last = self.chain(block, first, True)
        end = block.operations[len(block.operations) - 1].operation
        return hand_on(first, last, ir.InsertionPoint(end))

    def _calls_in(self, block):
        for operation in self.holders(block):
            if is_call(operation):
                yield operation
            else:
                for inner in self.blocks(operation):
                    yield from self._calls_in(inner)

    def blocks(self, operation):
        return [self._body(operation)[1]] if operation.name == "func.call" else blocks_of(operation)

    def _pass(self, operation, before, local):
        """Through an operation that holds calls."""
        captures = operation.name in ("stablehlo.case", "stablehlo.if")
        enters = self._least(operation.operands, operation) if local and not captures else None
        leaves = self._least(operation.results, operation) if local else None
        if enters is not None and before is not None:
            handed = hand_on(operation.operands[enters], before, ir.InsertionPoint(operation))
            operation.operands[enters] = handed
        elif operation.name == "func.call" and local and before is not None:
            enters = len(operation.operands)
            operation = self._give(operation, before)
        for block in self.blocks(operation):
            first = before if captures else None
            if enters is not None and before is not None:
                first = block.arguments[enters]
            last = self.chain(block, first, local)
            end = block.operations[len(block.operations) - 1].operation
            if leaves is not None and last is not None and len(end.operands) > leaves:
                kept = hand_on(end.operands[leaves], last, ir.InsertionPoint(end))
                end.operands[leaves] = kept
        return before if leaves is None else operation.results[leaves]

    def _give(self, call, value):
        """The call of a function that takes one operand more."""
        function, block = self.function(call)
        call = widen(call, [value], [], entries_of(call.attributes))
        block.add_argument(value.type, call.location)
        widen_type(function, "arg_attrs")
        return call

    def _least(self, values, operation):
        """The index of the smallest array that is no window. Of a loop not the first, by which XLA
        counts it."""
        sizes = {}
        for i, value in enumerate(values):
            kind = value.type
            if not isinstance(kind, ir.RankedTensorType) or value in self._windows:
                continue
            if str(kind.element_type) in _ELEMENTS and kind.has_static_shape:
                sizes[i] = math.prod(kind.shape)
        if operation.name == "stablehlo.while" and len(sizes) > 1:
            sizes.pop(0, None)
        return min(sizes, key=sizes.get, default=None)


def blocks_of(operation):
    return [block for region in operation.regions for block in region.blocks]


def is_effect(operation):
    """Not in a part of the program that XLA divides."""
    attributes = operation.attributes
    return "has_side_effect" in attributes and ir.BoolAttr(attributes["has_side_effect"]).value


def _put(operation, before):
    """Puts a call after a value, or None. Returns a result of it."""
    if before is not None:
        operation = after(operation, before)
    return operation.results[len(operation.results) - 1]


# ---- operations -------------------------------------------------------------------------


def after(operation, before):
    """The call, with one operand more."""
    attributes = entries_of(operation.attributes)
    layouts = [*ir.ArrayAttr(attributes["operand_layouts"]), layout_of(before.type)]
    attributes["operand_layouts"] = ir.ArrayAttr.get(layouts)
    config = entries_of(ir.DictAttr(attributes[_CONFIG]))
    others = ir.IntegerAttr(config["after"]).value if "after" in config else 0
    config["after"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), others + 1)
    attributes[_CONFIG] = ir.DictAttr.get(config)
    later = ir.Operation.create(
        operation.name,
        results=[value.type for value in operation.results],
        operands=[*operation.operands, before],
        attributes=attributes,
        loc=operation.location,
        ip=ir.InsertionPoint(operation),
    )
    for old, new in zip(operation.results, later.results):
        old.replace_all_uses_with(new)
    operation.erase()
    return later


def widen(operation, operands, results, attributes):
    """The operation with more operands and results, and the same regions."""
    wider = ir.Operation.create(
        operation.name,
        results=[*(value.type for value in operation.results), *results],
        operands=[*operation.operands, *operands],
        attributes=attributes,
        regions=len(operation.regions),
        loc=operation.location,
        ip=ir.InsertionPoint(operation),
    )
    for old, new in zip(operation.regions, wider.regions):
        for block in list(old.blocks):
            block.append_to(new)
    for old, new in zip(operation.results, wider.results):
        old.replace_all_uses_with(new)
    operation.erase()
    return wider


def widen_type(function, *attributes):
    """What a function says of itself, once its block has one argument more, or its return one value;
    `attributes` has one entry for each of those."""
    block = function.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    kind = ir.FunctionType.get([v.type for v in block.arguments], [v.type for v in end.operands])
    function.attributes["function_type"] = ir.TypeAttr.get(kind)
    for name in attributes:
        if name in function.attributes:
            told = [*ir.ArrayAttr(function.attributes[name]), ir.DictAttr.get({})]
            function.attributes[name] = ir.ArrayAttr.get(told)


def hand_on(value, before, at):
    """The value, once `before` is there."""
    with at:
        return _compat.custom_call(
            AFTER,
            result_types=[value.type],
            operands=[value, before],
            backend_config={},
            api_version=4,
            operand_layouts=[_order_of(value.type), _order_of(before.type)],
            result_layouts=[_order_of(value.type)],
            operand_output_aliases={0: 0},
        ).result


def _order_of(kind):
    return tuple(range(ir.RankedTensorType(kind).rank))[::-1]


def layout_of(kind):
    """Of an array of this type, as an attribute."""
    minor_to_major = np.array(_order_of(kind), np.int64)
    return ir.DenseIntElementsAttr.get(minor_to_major, type=ir.IndexType.get())


def entries_of(attributes):
    """As a dictionary: what MLIR's own iterates over depends on its version."""
    names = [entry if isinstance(entry, str) else entry.name for entry in attributes]
    return {name: attributes[name] for name in names}
