"""Expressions of TensorIR as Python closures over a scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.simt import arithmetic, device_functions, intrinsics, warps
from tests.simt.dtypes import Array, Value, cast, constant, reinterpret, split, type_of, uniform
from tests.simt.faults import Unsupported
from tests.simt.memory import Memory, Pointer
from tests.simt.scope import Scope
from tests.simt.usage import Usage

Evaluate = Callable[[Scope], Value]


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression ready to run.

    Args:
        run: Computes it.
        key: Equal for expressions that are equal; 0 if it may change while its variables do not.
        variables: What it depends on.
    """

    run: Evaluate
    key: int
    variables: frozenset[int]


@dataclass(frozen=True, slots=True)
class View:
    """A buffer: a place in a memory seen as elements of a type."""

    memory: Memory
    dtype: np.dtype[Any]
    offset: int = 0


class Expressions:
    """Compiles expressions, equal ones once; their values are kept while variables stay."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self.dependents: dict[int, list[int]] = {}
        self._known: dict[tuple[Any, ...], Compiled] = {}
        self._keys = -1

    def compile(self, node: Any) -> Evaluate:
        """The closure of an expression."""
        return self._compile(node).run

    def _compile(self, node: Any) -> Compiled:
        kind = type(node).__name__
        if kind in arithmetic.BINARY:
            return self._binary(node, kind)
        method = getattr(self, f"_{kind.lower()}", None)
        if method is None:
            raise Unsupported(f"the expression {kind}: {node}")
        result: Compiled = method(node)
        return result

    def _pure(
        self, identity: tuple[Any, ...], parts: Iterable[Compiled], run: Evaluate
    ) -> Compiled:
        """A function of its parts alone, kept in the scope if the parts are such too."""
        parts = tuple(parts)
        if not all(part.key for part in parts):
            return Compiled(run, 0, frozenset())
        full = (*identity, *(part.key for part in parts))
        if full not in self._known:
            variables = frozenset[int]().union(*(part.variables for part in parts))
            self._known[full] = self._kept(run, variables)
        return self._known[full]

    def _kept(self, run: Evaluate, variables: frozenset[int]) -> Compiled:
        self._keys -= 1
        key = self._keys
        for variable in variables:
            self.dependents.setdefault(variable, []).append(key)

        def recall(scope: Scope) -> Value:
            try:
                return scope.get(key)
            except KeyError:
                value = scope.values[key] = run(scope)
                return value

        return Compiled(recall, key, variables)

    def _constant(self, value: Value, identity: tuple[Any, ...]) -> Compiled:
        if identity not in self._known:
            self._keys -= 1
            self._known[identity] = Compiled(lambda _: value, self._keys, frozenset())
        return self._known[identity]

    def _intimm(self, node: Any) -> Compiled:
        dtype, _ = type_of(node)
        return self._constant(constant(node.value, dtype), ("int", dtype, node.value))

    def _floatimm(self, node: Any) -> Compiled:
        dtype, _ = type_of(node)
        return self._constant(constant(node.value, dtype), ("float", dtype, repr(node.value)))

    def _stringimm(self, node: Any) -> Compiled:
        return self._constant(str(node.value), ("string", str(node.value)))

    def _var(self, node: Any) -> Compiled:
        key, name = hash(node), node.name

        def run(scope: Scope) -> Value:
            try:
                return scope.get(key)
            except KeyError:
                raise Unsupported(f"the variable {name} has no value") from None

        return Compiled(run, key, frozenset((key,)))

    def _binary(self, node: Any, kind: str) -> Compiled:
        dtype, _ = type_of(node.a)
        apply = arithmetic.binary(kind, dtype)
        a, b = self._compile(node.a), self._compile(node.b)
        run_a, run_b = a.run, b.run
        return self._pure((kind, dtype), (a, b), lambda scope: apply(run_a(scope), run_b(scope)))

    def _unary(
        self, identity: tuple[Any, ...], x: Any, apply: Callable[[Value], Value]
    ) -> Compiled:
        inner = self._compile(x)
        run = inner.run
        return self._pure(identity, (inner,), lambda scope: apply(run(scope)))

    def _bitwisenot(self, node: Any) -> Compiled:
        dtype, _ = type_of(node)
        return self._unary(
            ("~", dtype), node.a, lambda x: constant(~x, dtype) if uniform(x) else ~x
        )

    def _not(self, node: Any) -> Compiled:
        return self._unary(("!",), node.a, lambda x: not x if uniform(x) else ~x)

    def _cast(self, node: Any) -> Compiled:
        (source, _), (target, _) = type_of(node.value), type_of(node)
        return self._unary(("cast", source, target), node.value, lambda x: cast(x, source, target))

    def _broadcast(self, node: Any) -> Compiled:
        dtype, lanes = type_of(node)
        return self._unary(("broadcast", lanes), node.value, lambda x: _wide(x, dtype, lanes))

    def _ramp(self, node: Any) -> Compiled:
        dtype, lanes = type_of(node)
        base, stride = self._compile(node.base), self._compile(node.stride)
        steps = np.arange(lanes, dtype=dtype)[:, None]

        def run(scope: Scope) -> Value:
            return np.asarray(base.run(scope), dtype) + steps * stride.run(scope)

        return self._pure(("ramp", lanes, dtype), (base, stride), run)

    def _shuffle(self, node: Any) -> Compiled:
        parts = [self._compile(vector) for vector in node.vectors]
        dtype, lanes = type_of(node)
        order = [int(index.value) for index in node.indices]

        def run(scope: Scope) -> Value:
            values = [np.asarray(part.run(scope), dtype) for part in parts]
            rows = [np.atleast_2d(value) if value.ndim != 1 else value[None] for value in values]
            rows = [np.broadcast_to(row, (len(row), scope.size)) for row in rows]
            picked = np.concatenate(rows)[order]
            return picked if lanes > 1 else picked[0]

        return self._pure(("shuffle", tuple(order)), parts, run)

    def _and(self, node: Any) -> Compiled:
        return self._short(node, "&&", stops=False)

    def _or(self, node: Any) -> Compiled:
        return self._short(node, "||", stops=True)

    def _short(self, node: Any, name: str, *, stops: bool) -> Compiled:
        """The second operand is evaluated only where the first does not decide."""
        a, b = self._compile(node.a), self._compile(node.b)

        def run(scope: Scope) -> Value:
            first = a.run(scope)
            if uniform(first):
                return stops if first == stops else b.run(scope)
            undecided = first != stops
            if undecided.all() or not undecided.any():
                return b.run(scope) if undecided.any() else first
            if first.ndim > 1:
                return np.where(undecided, b.run(scope), first)
            result = first.copy()
            result[undecided] = b.run(scope.narrow(undecided))
            return result

        return self._pure((name,), (a, b), run)

    def _select(self, node: Any) -> Compiled:
        """Both values are evaluated: TVM leaves it open whether they are."""
        dtype, _ = type_of(node)
        nodes = (node.condition, node.true_value, node.false_value)
        parts = [self._compile(part) for part in nodes]

        def run(scope: Scope) -> Value:
            condition, yes, no = (part.run(scope) for part in parts)
            if uniform(condition):
                return yes if condition else no
            return np.where(condition, np.asarray(yes, dtype), np.asarray(no, dtype))

        return self._pure(("select",), parts, run)

    def _let(self, node: Any) -> Compiled:
        value, body, key = self.compile(node.value), self.compile(node.body), hash(node.var)

        def run(scope: Scope) -> Value:
            scope.bind(key, value(scope))
            return body(scope)

        return Compiled(run, 0, frozenset())

    def _tensorload(self, node: Any) -> Compiled:
        place = self.place(node.source, node.indices)
        self.note(node.source)

        def run(scope: Scope) -> Value:
            memory, index, dtype, count = place(scope)
            return memory.load(scope, index, dtype, count)

        return Compiled(run, 0, frozenset())

    def note(self, buffer: Any, width: int = 0, *, writes: bool = False) -> None:
        """An access to a buffer is in the program, of an element or of ``width`` bytes."""
        dtype, _ = split(str(buffer.ty.dtype))
        self.usage.access(hash(buffer), width or dtype.itemsize, writes=writes)

    def place(
        self, buffer: Any, indices: Any
    ) -> Callable[[Scope], tuple[Memory, Value, np.dtype[Any], int]]:
        """Where an access goes: memory, first element, type, and how many neighbours."""
        if len(indices) != 1:
            raise Unsupported(f"an index of {len(indices)} dimensions into {buffer.name}")
        index = indices[0]
        _, lanes = type_of(index)
        count = 1
        if type(index).__name__ == "Ramp" and getattr(index.stride, "value", 0) == 1:
            index, count = index.base, lanes
        run, key = self.compile(index), hash(buffer)

        def find(scope: Scope) -> tuple[Memory, Value, np.dtype[Any], int]:
            view: View = scope.get(key)
            at = run(scope)
            return view.memory, at + view.offset if view.offset else at, view.dtype, count

        return find

    def _call(self, node: Any) -> Compiled:
        name = str(getattr(node.op, "name", node.op))
        arguments = list(node.args)
        function = intrinsics.known(name)
        if name == "tirx.call_pure_extern":
            name = str(arguments.pop(0).value)
            function = intrinsics.library(name)
        if function is not None:
            parts = [self._compile(argument) for argument in arguments]
            return self._pure(
                (name,), parts, lambda scope: function(*(part.run(scope) for part in parts))
            )
        if name == "tirx.reinterpret":
            return self._reinterpret(node)
        special: dict[str, Callable[[Any], Evaluate]] = {
            "prim.if_then_else": self._if_then_else,
            "tirx.address_of": self._address_of,
            "tirx.buffer_data": self._buffer_data,
            "tirx.cuda.func_call": self._device_function,
        }
        if name in special:
            return Compiled(special[name](node), 0, frozenset())
        if (collective := warps.known(name)) is not None:
            return Compiled(self._with_scope(collective, node.args), 0, frozenset())
        raise Unsupported(f"the intrinsic {name}: {node}")

    def _reinterpret(self, node: Any) -> Compiled:
        (source, _), (target, lanes) = type_of(node.args[0]), type_of(node)
        return self._unary(
            ("reinterpret", source, target, lanes),
            node.args[0],
            lambda x: reinterpret(x, source, target, lanes),
        )

    def _if_then_else(self, node: Any) -> Evaluate:
        """Each value is evaluated only where it is taken."""
        dtype, _ = type_of(node)
        condition, yes, no = (self.compile(argument) for argument in node.args)

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

    def _address_of(self, node: Any) -> Evaluate:
        load = node.args[0]
        if type(load).__name__ != "TensorLoad":
            raise Unsupported(f"the address of {load}")
        place = self.place(load.source, load.indices)

        def run(scope: Scope) -> Pointer:
            memory, index, dtype, _ = place(scope)
            return Pointer(memory, index, dtype)

        return run

    def _buffer_data(self, node: Any) -> Evaluate:
        key = hash(node.args[0])

        def run(scope: Scope) -> Pointer:
            view: View = scope.get(key)
            return Pointer(view.memory, view.offset, view.dtype)

        return run

    def _device_function(self, node: Any) -> Evaluate:
        name = str(node.args[0].value)
        function = device_functions.known(name)
        if function is None:
            raise Unsupported(f"the device function {name}")
        arguments = node.args[1:-1]  # the last one is the function's source
        self._note_pointers(name, arguments)
        return self._with_scope(function, arguments)

    def _note_pointers(self, name: str, arguments: Iterable[Any]) -> None:
        for position, argument in enumerate(arguments):
            if _is_address(argument):
                width, writes = device_functions.POINTERS[name][position]
                self.note(argument.args[0].source, width, writes=writes)

    def _with_scope(self, function: Callable[..., Value], arguments: Iterable[Any]) -> Evaluate:
        parts = [self.compile(argument) for argument in arguments]
        return lambda scope: function(scope, *(part(scope) for part in parts))


def _is_address(node: Any) -> bool:
    return type(node).__name__ == "Call" and str(node.op.name) == "tirx.address_of"


def _wide(value: Value, dtype: np.dtype[Any], lanes: int) -> Array:
    array = np.asarray(value, dtype)
    return np.broadcast_to(array, (lanes, array.shape[-1] if array.ndim else 1))


def _merged(taken: Array, yes: Value, no: Value, dtype: np.dtype[Any]) -> Array:
    """``yes`` and ``no`` are values of the lanes that take them alone."""
    rows = max((value.shape[:-1] for value in (yes, no) if np.ndim(value) > 1), default=())
    result = np.empty((*rows, len(taken)), dtype)
    result[..., taken], result[..., ~taken] = yes, no
    return result
