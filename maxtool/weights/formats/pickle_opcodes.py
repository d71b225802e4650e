"""The opcodes that build plain values, as pickletools documents them: protocols 2 to 5."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from maxtool.weights.formats.pickle_machine import (
    FOREIGN,
    MAX_GLOBAL_BYTES,
    Machine,
    Unfit,
    is_foreign,
    key_of,
)

Operation = Callable[[Machine], None]


def stop(machine: Machine) -> None:
    """Never called: the loop ends before it."""


def _skip(count: int) -> Operation:
    def skip(machine: Machine) -> None:
        machine.cursor.skip(count, "an operand")

    return skip


def _constant(make: Callable[[], object]) -> Operation:
    def push(machine: Machine) -> None:
        machine.stack.append(make())

    return push


def _number(layout: str) -> Operation:
    packed = struct.Struct(layout)

    def push(machine: Machine) -> None:
        at = machine.cursor.skip(packed.size, "a number")
        machine.stack.append(packed.unpack_from(machine.cursor.data, at)[0])

    return push


def _raw(machine: Machine, size: int) -> bytes:
    """Bytes after a length of ``size`` bytes."""
    cursor = machine.cursor
    length = int.from_bytes(cursor.take(size, "a length"), "little")
    return cursor.take(length, "text")


def _text(size: int) -> Operation:
    def push(machine: Machine) -> None:
        machine.stack.append(_raw(machine, size).decode("utf-8", "surrogatepass"))

    return push


def _bytes(size: int) -> Operation:
    def push(machine: Machine) -> None:
        machine.stack.append(_raw(machine, size))

    return push


def _old_text(size: int) -> Operation:
    """The text of Python 2, which had no encoding."""

    def push(machine: Machine) -> None:
        machine.stack.append(_raw(machine, size).decode("latin-1"))

    return push


def _long(machine: Machine) -> None:
    machine.stack.append(int.from_bytes(_raw(machine, 1), "little", signed=True))


def _line(machine: Machine) -> str:
    cursor = machine.cursor
    start = cursor.position
    end = cursor.data.find(b"\n", start, min(start + MAX_GLOBAL_BYTES, cursor.end))
    if end < 0:
        raise Unfit(f"a name of more than {MAX_GLOBAL_BYTES} bytes")
    return cursor.take(end + 1 - start, "a name")[:-1].decode()


def _global(machine: Machine) -> None:
    machine.find(_line(machine), _line(machine))


def _stack_global(machine: Machine) -> None:
    name, module = machine.pop(), machine.pop()
    if type(name) is not str or type(module) is not str:
        raise Unfit("a name that is no text")
    if len(name) + len(module) > 2 * MAX_GLOBAL_BYTES:
        raise Unfit(f"a name of more than {MAX_GLOBAL_BYTES} bytes")
    machine.find(module, name)


def _mark(machine: Machine) -> None:
    machine.marks.append(len(machine.stack))


def _pop(machine: Machine) -> None:
    machine.pop()


def _pop_mark(machine: Machine) -> None:
    machine.pop_mark()


def _duplicate(machine: Machine) -> None:
    machine.stack.append(machine.top(object))


def _tuple(count: int) -> Operation:
    def push(machine: Machine) -> None:
        items = [machine.pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(items)))

    return push


def _tuple_of_mark(machine: Machine) -> None:
    machine.stack.append(tuple(machine.pop_mark()))


def _list_of_mark(machine: Machine) -> None:
    machine.stack.append(machine.pop_mark())


def _dictionary_of_mark(machine: Machine) -> None:
    items = machine.pop_mark()
    machine.stack.append({})
    _set(machine, items)


def _append(machine: Machine) -> None:
    _extend(machine, [machine.pop()])


def _append_mark(machine: Machine) -> None:
    _extend(machine, machine.pop_mark())


def _extend(machine: Machine, items: list[Any]) -> None:
    target = machine.top(list)
    if target is not FOREIGN:
        target.extend(items)


def _set_item(machine: Machine) -> None:
    value, key = machine.pop(), machine.pop()
    _set(machine, [key, value])


def _set_items(machine: Machine) -> None:
    _set(machine, machine.pop_mark())


def _set(machine: Machine, items: list[Any]) -> None:
    target = machine.top(dict)
    if len(items) % 2:
        raise Unfit("a key without a value")
    if target is not FOREIGN:
        for key, value in zip(items[::2], items[1::2], strict=True):
            if key is not FOREIGN:
                target[key_of(key)] = value


def _reduce(machine: Machine) -> None:
    arguments, function = machine.pop(), machine.pop()
    machine.call(function, arguments)


def _build(machine: Machine) -> None:
    """State of an object: its attributes, none of which are tensors of a state dict."""
    machine.pop()
    machine.top(object)


def _instance(machine: Machine) -> None:
    machine.find(_line(machine), _line(machine))
    function = machine.stack.pop()
    machine.call(function, tuple(machine.pop_mark()))


def _persistent(machine: Machine) -> None:
    wanted = machine.pop()
    if wanted is FOREIGN or is_foreign(wanted):
        machine.stack.append(FOREIGN)
    elif isinstance(wanted, tuple):
        machine.stack.append(machine.persistent(wanted))
    else:
        raise Unfit("a persistent id that is no tuple")


def _put(size: int) -> Operation:
    def put(machine: Machine) -> None:
        number = int.from_bytes(machine.cursor.take(size, "a memo number"), "little")
        machine.memo[number] = machine.top(object)

    return put


def _memoize(machine: Machine) -> None:
    machine.memo[len(machine.memo)] = machine.top(object)


def _get(size: int) -> Operation:
    def get(machine: Machine) -> None:
        number = int.from_bytes(machine.cursor.take(size, "a memo number"), "little")
        if number not in machine.memo:
            raise Unfit(f"nothing is remembered as {number}")
        machine.stack.append(machine.memo[number])

    return get


_BY_CHARACTER: dict[str, Operation] = {
    ".": stop,
    "(": _mark,
    "0": _pop,
    "1": _pop_mark,
    "2": _duplicate,
    "N": _constant(lambda: None),
    "\x88": _constant(lambda: True),
    "\x89": _constant(lambda: False),
    "J": _number("<i"),
    "K": _number("<B"),
    "M": _number("<H"),
    "G": _number(">d"),
    "\x8a": _long,
    "X": _text(4),
    "\x8c": _text(1),
    "\x8d": _text(8),
    "U": _old_text(1),
    "T": _old_text(4),
    "C": _bytes(1),
    "B": _bytes(4),
    "\x8e": _bytes(8),
    "]": _constant(list),
    "\x8f": _constant(list),
    "a": _append,
    "e": _append_mark,
    "\x90": _append_mark,
    "l": _list_of_mark,
    "\x91": _list_of_mark,
    ")": _constant(tuple),
    "t": _tuple_of_mark,
    "\x85": _tuple(1),
    "\x86": _tuple(2),
    "\x87": _tuple(3),
    "}": _constant(dict),
    "d": _dictionary_of_mark,
    "s": _set_item,
    "u": _set_items,
    "c": _global,
    "\x93": _stack_global,
    "i": _instance,
    "R": _reduce,
    "\x81": _reduce,
    "b": _build,
    "Q": _persistent,
    "q": _put(1),
    "r": _put(4),
    "\x94": _memoize,
    "h": _get(1),
    "j": _get(4),
    "\x80": _skip(1),
    "\x95": _skip(8),
}
OPCODES = {ord(character): operation for character, operation in _BY_CHARACTER.items()}
