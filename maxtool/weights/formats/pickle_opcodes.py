"""The opcodes that build plain values, by the names of pickletools: protocols 2 to 5.

Operands are read by pickletools, of an opcode of the table only; names are not, as pickletools
undoes escapes in them, which pickle does not know.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from io import BytesIO
from typing import Any

from maxtool.weights.formats.pickle_machine import FOREIGN, BadArguments, Machine, is_foreign

# Does what an opcode says to the machine; most have no operand.
Operation = Callable[[Machine, Any], object]

STOP = b"."
NAMED = ("GLOBAL", "INST")
MAX_GLOBAL_BYTES = 256
# Integer keys beyond this could be chosen so that a dictionary becomes slow.
MAX_INTEGER_KEY = 1 << 32


def operand(opcode: pickletools.OpcodeInfo, stream: BytesIO) -> Any:  # noqa: ANN401 - its type
    """Read the operand of an opcode; None if it has none."""
    if opcode.arg is None:
        return None
    try:
        if opcode.name in NAMED:
            return _name(stream), _name(stream)
        return opcode.arg.reader(stream)
    except UnicodeDecodeError:
        raise BadArguments("text that is not UTF-8") from None
    except ValueError as error:
        raise BadArguments(str(error)) from None


def _name(stream: BytesIO) -> str:
    line = stream.readline(MAX_GLOBAL_BYTES)
    if not line.endswith(b"\n"):
        raise BadArguments(f"a name of more than {MAX_GLOBAL_BYTES} bytes")
    return line[:-1].decode()


def _stack_global(machine: Machine, _: None) -> None:
    name, module = machine.pop(), machine.pop()
    if type(name) is not str or type(module) is not str:
        raise BadArguments("a name that is not a text")
    if len(name) + len(module) > 2 * MAX_GLOBAL_BYTES:
        raise BadArguments(f"a name of more than {MAX_GLOBAL_BYTES} bytes")
    machine.find(module, name)


def _tuple(count: int) -> Operation:
    def push(machine: Machine, _: None) -> None:
        items = [machine.pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(items)))

    return push


def _dictionary_of_mark(machine: Machine, _: None) -> None:
    items = machine.pop_mark()
    machine.stack.append({})
    _set(machine, items)


def _extend(machine: Machine, items: list[Any]) -> None:
    target = machine.top(list)
    if target is not FOREIGN:
        target.extend(items)


def _set_item(machine: Machine, _: None) -> None:
    value, key = machine.pop(), machine.pop()
    _set(machine, [key, value])


def _set(machine: Machine, items: list[Any]) -> None:
    target = machine.top(dict)
    if len(items) % 2:
        raise BadArguments("a key without a value")
    if target is not FOREIGN:
        for key, value in zip(items[::2], items[1::2], strict=True):
            if key is not FOREIGN:
                target[_key(key)] = value


def _key(key: object) -> str | int:
    """Return a dictionary key whose hashing and comparing is harmless, or raise."""
    if type(key) is str or (type(key) is int and abs(key) < MAX_INTEGER_KEY):
        return key
    what = f"a dictionary key of type {type(key).__name__}, neither text nor a small integer"
    raise BadArguments(what)


def _reduce(machine: Machine, _: None) -> None:
    arguments, function = machine.pop(), machine.pop()
    machine.call(function, arguments)


def _build(machine: Machine, _: None) -> None:
    """State of an object: its attributes, none of which are tensors of a state dict."""
    machine.pop()
    machine.top(object)


def _instance(machine: Machine, names: tuple[str, str]) -> None:
    machine.find(*names)
    function = machine.stack.pop()
    machine.call(function, tuple(machine.pop_mark()))


def _persistent(machine: Machine, _: None) -> None:
    wanted = machine.pop()
    if wanted is FOREIGN or is_foreign(wanted):
        machine.stack.append(FOREIGN)
    elif isinstance(wanted, tuple):
        machine.stack.append(machine.persistent(wanted))
    else:
        raise BadArguments("a persistent id that is not a tuple")


def _get(machine: Machine, number: int) -> None:
    if number not in machine.memo:
        raise BadArguments(f"nothing is remembered as {number}")
    machine.stack.append(machine.memo[number])


def _put(machine: Machine, number: int) -> None:
    machine.memo[number] = machine.top(object)


def _push(make: Callable[[Any], object]) -> Operation:
    return lambda machine, operand: machine.stack.append(make(operand))


_pushed = _push(lambda operand: operand)

OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(["BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"], _pushed),
    **dict.fromkeys(["BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES"], _pushed),
    **dict.fromkeys(["SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING"], _pushed),
    **dict.fromkeys(("PROTO", "FRAME"), lambda _machine, _operand: None),
    "NONE": _push(lambda _: None),
    "NEWTRUE": _push(lambda _: True),
    "NEWFALSE": _push(lambda _: False),
    **dict.fromkeys(["EMPTY_LIST", "EMPTY_SET"], _push(lambda _: [])),
    "EMPTY_TUPLE": _push(lambda _: ()),
    "EMPTY_DICT": _push(lambda _: {}),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "POP": lambda machine, _: machine.pop(),
    "POP_MARK": lambda machine, _: machine.pop_mark(),
    "DUP": lambda machine, _: machine.stack.append(machine.top(object)),
    "APPEND": lambda machine, _: _extend(machine, [machine.pop()]),
    **dict.fromkeys(["APPENDS", "ADDITEMS"], lambda m, _: _extend(m, m.pop_mark())),
    **dict.fromkeys(["LIST", "FROZENSET"], lambda m, _: m.stack.append(m.pop_mark())),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_mark())),
    **{f"TUPLE{count}": _tuple(count) for count in (1, 2, 3)},
    "DICT": _dictionary_of_mark,
    "SETITEM": _set_item,
    "SETITEMS": lambda machine, _: _set(machine, machine.pop_mark()),
    "GLOBAL": lambda machine, names: machine.find(*names),
    "STACK_GLOBAL": _stack_global,
    "INST": _instance,
    **dict.fromkeys(["REDUCE", "NEWOBJ"], _reduce),
    "BUILD": _build,
    "BINPERSID": _persistent,
    **dict.fromkeys(["BINPUT", "LONG_BINPUT"], _put),
    "MEMOIZE": lambda machine, _: _put(machine, len(machine.memo)),
    **dict.fromkeys(["BINGET", "LONG_BINGET"], _get),
}
# By the byte in the file; what is not here is refused before its operand is read.
OPCODES = {
    opcode.code.encode("latin-1"): (opcode, OPERATIONS[opcode.name])
    for opcode in pickletools.opcodes
    if opcode.name in OPERATIONS
}
