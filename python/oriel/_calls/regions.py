"""The order of calls in a program whose arrays XLA divides among devices. There calls stand in the
regions of shard_map, and between two regions XLA may put whatever the ranks' programs have there,
or take one before the other. So a word of each device goes from region to region: everything that
holds some, functions, loops and branches too, has an operand and a result more. Regions of another
mesh than the first one's, and those that leave axes to XLA, are not ordered."""

import re

import numpy as np
from jax.interpreters import mlir

from oriel._calls import order as _order

ir = mlir.ir

_REGION = "sdy.manual_computation"


def order(module, *known):
    """Puts the calls of a module in their order; what is known is as _order.Calls has it."""
    attributes = module.operation.attributes
    devices = 0
    if "mhlo.num_partitions" in attributes:
        devices = ir.IntegerAttr(attributes["mhlo.num_partitions"]).value
    calls = _order.Calls(*known)
    for operation in list(module.body.operations):
        function = operation.operation
        if function.name == "func.func" and _order.text_of(function, "sym_name") == "main":
            block = function.regions[0].blocks[0]
            if devices == 1:
                calls.chain(block, None, True)
            else:
                _thread(calls, block, devices)


def _thread(calls, block, devices):
    regions = [region for region in _regions_of(calls, block) if _is_local(calls, region)]
    words = _Words(calls, _kind(regions[0]) if len(regions) > 1 else None, devices)
    words.thread(block, words.first(block))


def _regions_of(calls, block):
    for operation in calls.holders(block):
        if operation.name == _REGION:
            yield operation
        else:
            for inner in calls.blocks(operation):
                yield from _regions_of(calls, inner)


def _is_local(calls, region):
    return calls.is_local(region.regions[0].blocks[0])


def _kind(region):
    """How a word lies there, as text of MLIR's: a sharding over all axes of the region."""
    mesh = re.search(r"<@\w+", str(region.attributes["in_shardings"]))
    mesh = mesh or re.search(r"<@\w+", str(region.attributes["out_shardings"]))
    axes = re.findall(r'"[^"]*"', str(region.attributes["manual_axes"]))
    return f"{mesh[0]}, [{{{', '.join(axes)}}}]>" if mesh else None


class _Words:
    def __init__(self, calls, kind, devices):
        """`kind` of None: there are no two regions, and no words."""
        self._calls, self._kind = calls, kind
        element = ir.IntegerType.get_signless(32)
        self._here = ir.RankedTensorType.get([1], element)
        self._everywhere = ir.RankedTensorType.get([devices], element)
        self._ways = {
            "func.call": self._through_function,
            "stablehlo.while": self._through_loop,
            "stablehlo.case": self._through_branches,
            "stablehlo.if": self._through_branches,
        }

    def first(self, block):
        if self._kind is None:
            return None
        zeros = np.zeros(self._everywhere.shape, np.int32)
        return ir.Operation.create(
            "stablehlo.constant",
            results=[self._everywhere],
            attributes={"value": ir.DenseElementsAttr.get(zeros)},
            loc=ir.Location.unknown(),
            ip=ir.InsertionPoint.at_block_begin(block),
        ).result

    def thread(self, block, word):
        """Orders what a block holds after a word. Returns the word that comes after it."""
        for operation in self._calls.holders(block):
            if operation.name == _REGION:
                word = self._through_region(operation, word)
            elif word is not None and operation.name in self._ways:
                word = self._ways[operation.name](operation, word)
            else:
                for inner in self._calls.blocks(operation):
                    self.thread(inner, None)
        return word

    def _through_region(self, region, word):
        block = region.regions[0].blocks[0]
        local = _is_local(self._calls, region)
        if word is None or not local or _kind(region) != self._kind:
            self._calls.chain(block, None, local)
            return word
        attributes = _order.entries_of(region.attributes)
        for name in ("in_shardings", "out_shardings"):
            attributes[name] = _with_sharding(attributes[name], self._kind)
        region = _order.widen(region, [word], [self._everywhere], attributes)
        block = region.regions[0].blocks[0]  # Python's idea of it is void once it has moved
        first = block.add_argument(self._here, region.location)
        _return_too(block, self._calls.hand_on_after(block, first))
        return _last(region.results)

    def _through_function(self, call, word):
        function, inner = self._calls.function(call)
        call = _order.widen(call, [word], [self._everywhere], _order.entries_of(call.attributes))
        first = inner.add_argument(self._everywhere, function.location)
        _return_too(inner, self.thread(inner, first))
        _order.widen_type(function, "arg_attrs", "res_attrs")
        return _last(call.results)

    def _through_loop(self, loop, word):
        loop = _order.widen(loop, [word], [self._everywhere], _order.entries_of(loop.attributes))
        condition, body = self._calls.blocks(loop)
        for block in (condition, body):
            block.add_argument(self._everywhere, loop.location)
        _return_too(body, self.thread(body, _last(body.arguments)))
        return _last(loop.results)

    def _through_branches(self, choice, word):
        choice = _order.widen(choice, [], [self._everywhere], _order.entries_of(choice.attributes))
        for block in self._calls.blocks(choice):
            _return_too(block, self.thread(block, word))
        return _last(choice.results)


# ---- operations -------------------------------------------------------------------------


def _last(values):
    return values[len(values) - 1]


def _with_sharding(shardings, one):
    text = str(shardings).removesuffix("]>")
    return ir.Attribute.parse(f"{text}{'' if text.endswith('[') else ', '}{one}]>")


def _return_too(block, value):
    end = _last(block.operations).operation
    ir.Operation.create(
        end.name,
        operands=[*end.operands, value],
        attributes=_order.entries_of(end.attributes),
        loc=end.location,
        ip=ir.InsertionPoint(end),
    )
    end.erase()
