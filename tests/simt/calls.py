"""Calls in TensorIR: of functions on numbers, of what a warp does together, of device functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.simt import device_functions, intrinsics, warps
from tests.simt.compiled import Compiled, Evaluate, View
from tests.simt.dtypes import Array, Value, reinterpret, type_of, uniform
from tests.simt.faults import Unsupported
from tests.simt.memory import Pointer
from tests.simt.scope import Scope

if TYPE_CHECKING:
    from tests.simt.expressions import Expressions

ADDRESS = "tirx.address_of"


def compile_call(known: Expressions, node: Any) -> Compiled:
    """The closure of a call."""
    name = str(getattr(node.op, "name", node.op))
    arguments = list(node.args)
    if name == "tirx.call_pure_extern":
        name = str(arguments.pop(0).value)
    if (function := intrinsics.known(name)) is not None:
        parts = [known.part(argument) for argument in arguments]
        return known.pure(
            (name,), parts, lambda scope: function(*(part.run(scope) for part in parts))
        )
    if name == "tirx.reinterpret":
        return _reinterpret(known, node)
    if name in SPECIAL:
        return Compiled(SPECIAL[name](known, node), 0, frozenset())
    if (collective := warps.known(name)) is not None:
        return Compiled(_with_scope(known, collective, node.args), 0, frozenset())
    raise Unsupported(f"the intrinsic {name}: {node}")


def _reinterpret(known: Expressions, node: Any) -> Compiled:
    (source, _), (target, lanes) = type_of(node.args[0]), type_of(node)
    return known.unary(
        ("reinterpret", source, target, lanes),
        node.args[0],
        lambda x: reinterpret(x, source, target, lanes),
    )


def _if_then_else(known: Expressions, node: Any) -> Evaluate:
    """Each value is evaluated only where it is taken."""
    dtype, _ = type_of(node)
    condition, yes, no = (known.compile(argument) for argument in node.args)

    def run(scope: Scope) -> Value:
        taken = condition(scope)
        if uniform(taken):
            return (yes if taken else no)(scope)
        if taken.all() or not taken.any():
            return (yes if taken.all() else no)(scope)
        if taken.ndim > 1:
            raise Unsupported(f"a vector as a condition: {node}")
        chosen, other = yes(scope.narrow(taken)), no(scope.narrow(~taken))
        return _merged(taken, chosen, other, dtype)

    return run


def _address_of(known: Expressions, node: Any) -> Evaluate:
    load = node.args[0]
    if type(load).__name__ != "TensorLoad":
        raise Unsupported(f"the address of {load}")
    place = known.place(load.source, load.indices)

    def run(scope: Scope) -> Pointer:
        memory, index, dtype, _ = place(scope)
        return Pointer(memory, index, dtype)

    return run


def _buffer_data(_: Expressions, node: Any) -> Evaluate:
    key = hash(node.args[0])

    def run(scope: Scope) -> Pointer:
        view: View = scope.get(key)
        return Pointer(view.memory, view.offset, view.dtype)

    return run


def _device_function(known: Expressions, node: Any) -> Evaluate:
    name = str(node.args[0].value)
    function = device_functions.known(name)
    if function is None:
        raise Unsupported(f"the device function {name}")
    arguments = node.args[1:-1]  # the last one is the function's source
    _note_pointers(known, name, arguments)
    return _with_scope(known, function, arguments)


def _note_pointers(known: Expressions, name: str, arguments: Iterable[Any]) -> None:
    for position, argument in enumerate(arguments):
        if _is_address(argument):
            width, writes = device_functions.POINTERS[name][position]
            known.note(argument.args[0].source, width, writes=writes)


def _with_scope(
    known: Expressions, function: Callable[..., Value], arguments: Iterable[Any]
) -> Evaluate:
    parts = [known.compile(argument) for argument in arguments]
    return lambda scope: function(scope, *(part(scope) for part in parts))


def _is_address(node: Any) -> bool:
    return type(node).__name__ == "Call" and str(node.op.name) == ADDRESS


def _merged(taken: Array, yes: Value, no: Value, dtype: np.dtype[Any]) -> Array:
    """``yes`` and ``no`` are values of the lanes that take them alone."""
    rows = max((value.shape[:-1] for value in (yes, no) if np.ndim(value) > 1), default=())
    result = np.empty((*rows, len(taken)), dtype)
    result[..., taken], result[..., ~taken] = yes, no
    return result


SPECIAL: dict[str, Callable[[Expressions, Any], Evaluate]] = {
    "prim.if_then_else": _if_then_else,
    ADDRESS: _address_of,
    "tirx.buffer_data": _buffer_data,
    "tirx.cuda.func_call": _device_function,
}
