"""A reader of pickles that runs none of their code.

What a pickle wants to import is looked up in a table of names that the caller gives; nothing is
imported and no object of a class is made. Everything else is refused, and the work is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import NoReturn

from maxtool.errors import InputError, MalformedFile
from maxtool.weights.cursor import Cursor
from maxtool.weights.formats.pickle_machine import (
    Arguments,
    BadArguments,
    Call,
    ImportedName,
    Machine,
    Unsupported,
)
from maxtool.weights.formats.pickle_opcodes import OPCODES, STOP, operand
from maxtool.weights.jsonfile import uncollected

# An opcode makes at most one object, so these two bound the memory; a tensor takes 30 opcodes.
MAX_PICKLE_BYTES = 1 << 24
MAX_OPCODES = 3 << 17


def _dictionary(arguments: Arguments) -> object:
    return arguments[0] if arguments and isinstance(arguments[0], dict) else {}


def _first(arguments: Arguments) -> object:
    return arguments[0] if arguments else []


# The plain values that are written as calls. What is given is returned, not copied: a pickle could
# ask for copies without end. Bytes, which protocol 2 writes as text and a codec, stay text.
PLAIN: Mapping[ImportedName, Call] = {
    ImportedName("collections", "OrderedDict"): _dictionary,
    ImportedName("collections", "Counter"): _dictionary,
    ImportedName("_codecs", "encode"): _first,
    ImportedName("builtins", "set"): _first,
    ImportedName("__builtin__", "set"): _first,
}


def read(cursor: Cursor, calls: Mapping[ImportedName, Call | None], persistent: Call) -> object:
    """Read one pickle: numbers, text, bytes, lists, tuples, dictionaries, and what calls made.

    Args:
        cursor: Stands at its start and ends where it ends.
        calls: What stands for each name that may be imported: a function of the arguments, or
            ``None`` where the name itself is the value. ``InputError`` lists names not in it.
        persistent: Makes the value of a persistent id.
    """
    if cursor.remaining > MAX_PICKLE_BYTES:
        cursor.fail(f"a pickle of {cursor.remaining} bytes; at most {MAX_PICKLE_BYTES}")
    machine = Machine(cursor, {**PLAIN, **calls}, persistent)
    try:
        with uncollected():
            value = _run(machine)
    except MalformedFile:
        if machine.foreign:  # what made it go wrong; the user shall hear of this
            _refuse_foreign(machine)
        raise
    if machine.foreign:
        _refuse_foreign(machine)
    return value


def _run(machine: Machine) -> object:
    cursor = machine.cursor
    start = cursor.position
    stream = BytesIO(cursor.take(cursor.remaining, "the pickle"))
    for _ in range(MAX_OPCODES):
        at, code = start + stream.tell(), stream.read(1)
        if not code:
            cursor.fail("the pickle ends early")
        if code == STOP:
            break
        if code not in OPCODES:
            cursor.fail(f"the pickle's opcode {code!r} is not read", offset=at)
        opcode, operation = OPCODES[code]
        try:
            operation(machine, operand(opcode, stream))
        except Unsupported as error:
            raise InputError(str(error), file=cursor.file, offset=cursor.origin + at) from None
        except (ValueError, TypeError, AttributeError) as error:
            what = str(error) if isinstance(error, BadArguments) else "an operand of the wrong type"
            cursor.fail(f"not a valid pickle: {what}", offset=at)
    else:
        cursor.fail(f"a pickle of more than {MAX_OPCODES} operations", offset=start + stream.tell())
    if not machine.stack:
        cursor.fail("not a valid pickle: nothing is on the stack", offset=at + 1)
    return machine.stack[-1]


def _refuse_foreign(machine: Machine) -> NoReturn:
    what = "the pickle wants to import something other than tensors, and nothing is imported here"
    problems, hint = list(machine.foreign), "save only the state dict, or as safetensors"
    raise InputError(what, file=machine.cursor.file, problems=problems, hint=hint)
