"""Windows in a program that has been lowered. A program reads one by `oriel_load` and writes one by
`oriel_store`, each a copy, whose operands say what comes before. Where a call alone has what a load
gives, it takes the window itself; where what it gives goes to a store alone, it writes the window
itself: nothing is copied, and what came before the load or the store comes before the call."""

from jax.interpreters import mlir

from oriel._calls import order as _order

ir = mlir.ir

LOAD, STORE = "oriel_load", "oriel_store"
_CONFIG = "mhlo.backend_config"
_TARGET = "call_target_name"
_ALIASES = "output_operand_aliases"
_RESHAPE = "stablehlo.reshape"
_MESSAGES = ("oriel_send", "oriel_recv", "oriel_sendrecv")  # whose results are no blocks
_EXACT = ("oriel_kernel", "oriel_op")  # a person's code, which may look at the shape


def fuse(module):
    """Makes calls of a module use windows where they lie."""
    for operation in _custom_calls(module, LOAD):
        _read_in_place(operation)
    for operation in _custom_calls(module, STORE):
        _write_in_place(operation)


def check_order(module):
    """Refuses a program that reads and writes a window and does not say which is first."""
    table = ir.SymbolTable(module.operation)
    if any(_written_by(call, table) for call in _custom_calls(module)):
        for function in module.body.operations:
            _check_blocks(function.operation, table)


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


def _read_in_place(load):
    """The window in the place of what is loaded, if that is an operand of one call alone."""
    window, *before = load.operands
    use = _only_use(load.result)
    call = use and use.owner.operation
    if call is None or not _takes_windows(call) or call.block != load.operation.block:
        return
    if use.operand_number < _data_operands(call):
        load.result.replace_all_uses_with(window)
        _remake(call, before)
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
    if _order.text_of(call, _TARGET) in _EXACT and result.type != window.type:
        return
    if not all(_is_before(other, call) for other in (window, *before)):
        return
    made = _remake(call, before, window)
    store.result.replace_all_uses_with(made.result)
    store.erase()
    while (reshaped := _owner(value)) != call:
        value = reshaped.operands[0]
        reshaped.erase()
    call.erase()


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


def _remake(call, before, into=None):
    """The call with operands more: a window for its result, which is a ticket then, and what it
    comes after. Without `into` the old call is gone."""
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


def _written_by(operation, table):
    """The values that an operation writes, itself or inside."""
    if operation.name == "stablehlo.custom_call":
        return _written_by_call(operation)
    found = []
    for block in _blocks_in(operation, table):
        arguments = list(block.arguments)
        inner = [
            value for other in block.operations for value in _written_by(other.operation, table)
        ]
        own = [value for value in inner if value in arguments]
        found += [value for value in inner if value not in own]  # captured
        found += [_origin(operation.operands[arguments.index(value)]) for value in own]
    return found


def _written_by_call(call):
    target = _order.text_of(call, _TARGET)
    if target == STORE:
        return [_origin(call.operands[0])]
    if not target.startswith("oriel_") or _CONFIG not in call.attributes:
        return []
    config = _config_of(call)
    end = len(call.operands) - _number(config, "after")
    return [_origin(value) for value in list(call.operands)[end - _number(config, "into") : end]]


def _blocks_in(operation, table):
    if operation.name == "func.call":
        name = ir.FlatSymbolRefAttr(operation.attributes["callee"]).value
        return [table[name].operation.regions[0].blocks[0]]
    return _order.blocks_of(operation)


def _check_blocks(operation, table):
    for block in _order.blocks_of(operation):
        _check_block([inner.operation for inner in block.operations], table)
        for inner in block.operations:
            _check_blocks(inner.operation, table)


def _check_block(operations, table):
    written = [(i, value) for i, one in enumerate(operations) for value in _written_by(one, table)]
    depends = _dependencies(operations) if written else []
    for i, window in written:
        for j, other in enumerate(operations):
            if other.name == _RESHAPE or all(_origin(v) != window for v in _operands_of(other)):
                continue
            if j != i and i not in depends[j] and j not in depends[i]:
                raise ValueError(
                    "oriel: a program reads a window and writes it (into=), and nothing says which "
                    "is first: give what comes later after= with the result of what comes first "
                    f"({_words(operations[i])}; {_words(other)})"
                )


def _operands_of(operation):
    """Of an operation, and of all in it."""
    found = list(operation.operands)
    for block in _order.blocks_of(operation):
        for inner in block.operations:
            found += _operands_of(inner.operation)
    return found


def _dependencies(operations):
    """For each operation the numbers of all that come before it by their data."""
    number = {operation: i for i, operation in enumerate(operations)}
    depends = []
    for operation in operations:
        owners = {_owner(value) for value in _operands_of(operation)}
        direct = {number[owner] for owner in owners if owner in number}
        depends.append(direct.union(*(depends[i] for i in direct)))
    return depends


def _words(operation):
    if operation.name != "stablehlo.custom_call":
        return operation.name
    name = _order.text_of(operation, _TARGET).replace("_", ".", 1)
    if "oriel.place" in operation.attributes:
        name += f" at {_order.text_of(operation, 'oriel.place')}"
    return name
