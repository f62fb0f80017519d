"""Windows in a program that has been lowered. A program reads one by `oriel_load` and writes one by
`oriel_store`, each a copy, whose operands say what comes before. Where a call alone has what a load
gives, it takes the window itself; where what it gives goes to a store alone, it writes the window
itself: nothing is copied, and what came before the load or the store comes before the call. In a
program that writes no window a load that comes after nothing is the window itself."""

import functools
import operator

from jax.interpreters import mlir

from oriel._calls import order as _order

ir = mlir.ir

LOAD, STORE = "oriel_load", "oriel_store"
_CONFIG = "mhlo.backend_config"
_TARGET = "call_target_name"
_ALIASES = "output_operand_aliases"
_RESHAPE = "stablehlo.reshape"
_SAME = (_RESHAPE, "stablehlo.optimization_barrier")  # whose results are their operands
_HOLDERS = ("stablehlo.while", "stablehlo.case", "stablehlo.if", "sdy.manual_computation")
_MESSAGES = ("oriel_send", "oriel_recv", "oriel_sendrecv")  # whose results are no blocks
_EXACT = ("oriel_kernel", "oriel_op")  # a person's code, which may look at the shape
_MOST_READ = 62  # of a call's operands, that may be windows which it comes after something for


def fuse(module):
    """Makes calls of a module use windows where they lie. Returns the windows."""
    loads, stores = _custom_calls(module, LOAD), _custom_calls(module, STORE)
    windows = [operation.operands[0] for operation in (*loads, *stores)]
    for operation in loads:
        # XLA may read an argument again later, since to it that never changes.
        _read_in_place(operation, freely=not stores)
    for operation in stores:
        _write_in_place(operation)
    return windows


def _custom_calls(module, target=None):
    found = []

    def see(operation):
        if operation.name == "stablehlo.custom_call" and (
            target is None or _order.text_of(operation, _TARGET) == target
        ):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(see, ir.WalkOrder.PRE_ORDER)
    return found


def _config_of(call):
    return _order.entries_of(ir.DictAttr(call.attributes[_CONFIG]))


def _number(config, name):
    return ir.IntegerAttr(config[name]).value if name in config else 0


# ---- a call takes a window, or writes one ------------------------------------------------


def _read_in_place(load, freely):
    """The window in the place of what is loaded, if that is an operand of one call alone, or `freely`
    if nothing has to come first."""
    window, *before = load.operands
    use = _only_use(load.result)
    call = use and use.owner.operation
    if freely and not before:
        load.result.replace_all_uses_with(window)
        load.erase()
    elif call is not None and _takes_windows(call) and call.block == load.operation.block:
        number = use.operand_number
        if number < min(_data_operands(call), _MOST_READ):
            load.result.replace_all_uses_with(window)
            _remake(call, before, read=number)
            load.erase()


def _write_in_place(store):
    """The window as the result of the call that gives what is stored, if that goes nowhere else."""
    window, value, *before = store.operands
    result = _origin(value)
    call = _owner(result)
    if call is None or not _takes_windows(call) or call.block != store.operation.block:
        return
    use = _only_use(result)
    if len(call.results) != 1 or use is None or use.owner.operation != store.operation:
        return
    if _order.text_of(call, _TARGET) in _EXACT and not _may_write(call, result, window):
        return
    if not all(_is_before(other, call) for other in (window, *before)):
        return
    made = _remake(call, before, into=window)
    store.result.replace_all_uses_with(made.result)
    store.erase()
    while (reshaped := _owner(value)) != call:
        value = reshaped.operands[0]
        reshaped.erase()
    call.erase()


def _may_write(call, result, window):
    """Of a person's code, which may read its operands when it has written results."""
    operands = list(call.operands)[: _data_operands(call)]
    apart = all(_origin(operand) != _origin(window) for operand in operands)
    return apart and result.type == window.type


def _takes_windows(operation):
    """Its operands and results have buffers of their own."""
    if not _order.is_call(operation) or _order.text_of(operation, _TARGET) in _MESSAGES:
        return False
    aliases = operation.attributes[_ALIASES] if _ALIASES in operation.attributes else ()
    tokens = any(not isinstance(value.type, ir.RankedTensorType) for value in operation.operands)
    return not tokens and len(ir.ArrayAttr(aliases) if aliases else ()) == 0


def _data_operands(call):
    config = _config_of(call)
    return len(call.operands) - _number(config, "after") - _number(config, "into")


def _only_use(value):
    """Its one use, through reshapes; None: there are others."""
    uses = list(value.uses)
    while len(uses) == 1 and uses[0].owner.operation.name == _RESHAPE:
        uses = list(uses[0].owner.operation.results[0].uses)
    return uses[0] if len(uses) == 1 else None


def _owner(value):
    """The operation that gives a value; None: it is an argument of its block."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _origin(value):
    """The value that it is, but for its shape."""
    while (owner := _owner(value)) is not None and owner.name == _RESHAPE:
        value = owner.operands[0]
    return value


def _is_before(value, operation):
    owner = _owner(value)
    if owner is None or owner.block != operation.block:
        return True
    for other in operation.block.operations:
        if other.operation == owner:
            return True
        if other.operation == operation:
            return False
    return False


def _remake(call, before, read=0, into=None):
    """The call with operands more: a window for its result, which is a ticket then, and what it
    comes after, for the window that operand `read` is. Without `into` the old call is gone."""
    attributes, config = _order.entries_of(call.attributes), _config_of(call)
    operands, types = list(call.operands), [value.type for value in call.results]
    layouts = list(ir.ArrayAttr(attributes["operand_layouts"]))
    if into is not None:
        end = len(operands) - _number(config, "after")
        operands.insert(end, into)
        layouts.insert(end, _order.layout_of(into.type))
        config["into"] = _as_number(1)
        types = [ir.RankedTensorType.get([1], ir.IntegerType.get_signless(32))]
        attributes["result_layouts"] = ir.ArrayAttr.get([_order.layout_of(types[0])])
    elif before:  # what XLA may have copied of it may be older
        config["read"] = _as_number(_number(config, "read") | 1 << read)
    operands += before
    layouts += [_order.layout_of(value.type) for value in before]
    if before:
        config["after"] = _as_number(_number(config, "after") + len(before))
    attributes["operand_layouts"] = ir.ArrayAttr.get(layouts)
    attributes[_CONFIG] = ir.DictAttr.get(config)
    at = ir.InsertionPoint(call)
    made = ir.Operation.create(call.name, types, operands, attributes, loc=call.location, ip=at)
    if into is None:
        for one, other in zip(call.results, made.results, strict=True):
            one.replace_all_uses_with(other)
        call.erase()
    return made


def _as_number(value):
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


# ---- which comes first -----------------------------------------------------------------------


class Order:
    """What a program does with windows, as it runs. A window is known by the argument of the program
    that it is: where that goes into a function or a loop twice, there both are one."""

    def __init__(self, module):
        self._table = ir.SymbolTable(module.operation)
        self._origins = {}  # a value: the argument that it is, or None

    def check(self, windows):
        """Refuses a program that reads and writes a window and does not say which is first. Returns
        all values that are one of the windows."""
        if not windows:
            return ()
        main = self._body("main")
        self._origins = {argument: argument for argument in main.arguments}
        self._look(main)
        windows = self._known(windows)
        return {value for value, origin in self._origins.items() if origin in windows}

    def _body(self, name):
        return self._table[name].operation.regions[0].blocks[0]

    def _look(self, block, copies=True):
        """(what it reads, what it writes). `copies`: and so is what it returns."""
        done = []
        operations = [operation.operation for operation in block.operations]
        for operation in operations if copies else operations[:-1]:
            done.append((operation, *self._effects(operation)))
        reads = set().union(*(reads for _, reads, _ in done))
        writes = set().union(*(writes for _, _, writes in done))
        if writes:
            _check(done, writes)
        return reads, writes

    def _effects(self, operation):
        """(what it reads, what it writes)"""
        operands = [self._origins.get(value) for value in operation.operands]
        if operation.name in _SAME:
            self._origins.update(zip(operation.results, operands))
            return set(), set()
        reads = self._known(operation.operands)
        if operation.name == "stablehlo.custom_call":
            return reads, self._known(_written_by(operation))
        if operation.name == "func.call":
            name = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
            return self._through([self._body(name)], operation, operands)
        if operation.name in _HOLDERS:
            return self._through(_order.blocks_of(operation), operation, operands)
        return reads, set()

    def _known(self, values):
        return {self._origins.get(value) for value in values} - {None}

    def _through(self, blocks, operation, operands):
        hands_on = operation.name in ("func.call", "stablehlo.while")
        reads, writes = set(), set()
        for block in blocks:
            self._origins.update(zip(block.arguments, operands))
            read, written = self._look(block, copies=not hands_on)
            reads, writes = reads | read, writes | written
        if hands_on:
            returned = [self._origins.get(value) for value in _last(blocks[-1].operations).operands]
            if operation.name == "stablehlo.while":
                returned = [r if r == o else None for r, o in zip(returned, operands)]
            self._origins.update(zip(operation.results, returned))
        return reads, writes


def _last(operations):
    return operations[len(operations) - 1].operation


def _written_by(call):
    """The windows that a custom call writes."""
    operands = list(call.operands)
    if _order.text_of(call, _TARGET) == STORE:
        return operands[:1]
    if not _order.is_call(call):
        return []
    config = _config_of(call)
    end = len(operands) - _number(config, "after")
    return operands[end - _number(config, "into") : end]


def _check(done, written):
    """Of operations of a block any two that use a window, and one of them writes it."""
    before = {}  # an operation: bits of those of `known` that come before it, or are it
    known = []
    for operation, reads, writes in done:
        owners = map(_owner, _operands_of(operation))
        bits = functools.reduce(operator.or_, (before.get(owner, 0) for owner in owners), 0)
        if (reads | writes) & written:
            for i, (other, its_reads, its_writes) in enumerate(known):
                clash = (reads | writes) & its_writes or writes & its_reads
                if clash and (_is_return(operation) or not bits >> i & 1):
                    _refuse(other, operation)
            bits |= 1 << len(known)
            known.append((operation, reads, writes))
        before[operation] = bits


def _is_return(operation):
    return operation.name in ("func.return", "stablehlo.return", "sdy.return")


def _refuse(first, second):
    if _is_return(second):
        raise ValueError(
            "oriel: a program returns a window that it writes (into=), and XLA copies it at any "
            f"time: return oriel.load(w, after=ticket) ({_words(first)})"
        )
    raise ValueError(
        "oriel: a program reads a window and writes it (into=), and nothing says which is first: "
        "give what comes later after= with the result of what comes first "
        f"({_words(first)}; {_words(second)})"
    )


def _operands_of(operation):
    """Of an operation, and of all in it."""
    found = list(operation.operands)
    for block in _order.blocks_of(operation):
        for inner in block.operations:
            found += _operands_of(inner.operation)
    return found


def _words(operation):
    if operation.name != "stablehlo.custom_call":
        return operation.name
    name = _order.text_of(operation, _TARGET).replace("_", ".", 1)
    if "oriel.place" in operation.attributes:
        name += f" at {_order.text_of(operation, 'oriel.place')}"
    return name
