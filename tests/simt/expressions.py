"""Expressions of TensorIR as Python closures over a scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tests.simt import arithmetic
from tests.simt.calls import compile_call
from tests.simt.compiled import Compiled, Evaluate, Place, View
from tests.simt.dtypes import Array, Value, cast, constant, split, type_of, uniform
from tests.simt.faults import Unsupported
from tests.simt.scope import Scope
from tests.simt.usage import Usage


class Expressions:
    """Compiles expressions, equal ones once; their values are kept while variables stay."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self.dependents: dict[int, list[int]] = {}
        self._known: dict[tuple[Any, ...], Compiled] = {}
        self._keys = -1

    def compile(self, node: Any) -> Evaluate:
        """The closure of an expression."""
        return self.part(node).run

    def part(self, node: Any) -> Compiled:
        """An expression as a part of others."""
        kind = type(node).__name__
        if kind in arithmetic.BINARY:
            return self._binary(node, kind)
        method = getattr(self, f"_{kind.lower()}", None)
        if method is None:
            raise Unsupported(f"the expression {kind}: {node}")
        result: Compiled = method(node)
        return result

    def pure(self, identity: tuple[Any, ...], parts: Iterable[Compiled], run: Evaluate) -> Compiled:
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
        a, b = self.part(node.a), self.part(node.b)
        run_a, run_b = a.run, b.run
        return self.pure((kind, dtype), (a, b), lambda scope: apply(run_a(scope), run_b(scope)))

    def unary(self, identity: tuple[Any, ...], x: Any, apply: Callable[[Value], Value]) -> Compiled:
        """A function of one part alone."""
        inner = self.part(x)
        run = inner.run
        return self.pure(identity, (inner,), lambda scope: apply(run(scope)))

    def _bitwisenot(self, node: Any) -> Compiled:
        dtype, _ = type_of(node)
        return self.unary(("~", dtype), node.a, lambda x: constant(~x, dtype) if uniform(x) else ~x)

    def _not(self, node: Any) -> Compiled:
        return self.unary(("!",), node.a, lambda x: not x if uniform(x) else ~x)

    def _cast(self, node: Any) -> Compiled:
        (source, _), (target, _) = type_of(node.value), type_of(node)

        cut = target.kind in "iu" and target.itemsize <= source.itemsize

        def apply(x: Value) -> Value:
            if not cut:
                arithmetic.require_fit(x, source)
            return cast(x, source, target)

        return self.unary(("cast", source, target), node.value, apply)

    def _broadcast(self, node: Any) -> Compiled:
        dtype, lanes = type_of(node)
        return self.unary(("broadcast", lanes), node.value, lambda x: _wide(x, dtype, lanes))

    def _ramp(self, node: Any) -> Compiled:
        dtype, lanes = type_of(node)
        base, stride = self.part(node.base), self.part(node.stride)
        steps = np.arange(lanes, dtype=dtype)[:, None]

        def run(scope: Scope) -> Value:
            return np.asarray(base.run(scope), dtype) + steps * stride.run(scope)

        return self.pure(("ramp", lanes, dtype), (base, stride), run)

    def _shuffle(self, node: Any) -> Compiled:
        parts = [self.part(vector) for vector in node.vectors]
        dtype, lanes = type_of(node)
        order = [int(index.value) for index in node.indices]

        def run(scope: Scope) -> Value:
            values = [np.asarray(part.run(scope), dtype) for part in parts]
            rows = [np.atleast_2d(value) if value.ndim != 1 else value[None] for value in values]
            rows = [np.broadcast_to(row, (len(row), scope.size)) for row in rows]
            picked = np.concatenate(rows)[order]
            return picked if lanes > 1 else picked[0]

        return self.pure(("shuffle", tuple(order)), parts, run)

    def _and(self, node: Any) -> Compiled:
        return self._short(node, "&&", stops=False)

    def _or(self, node: Any) -> Compiled:
        return self._short(node, "||", stops=True)

    def _short(self, node: Any, name: str, *, stops: bool) -> Compiled:
        """The second operand is evaluated only where the first does not decide."""
        a, b = self.part(node.a), self.part(node.b)

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

        return self.pure((name,), (a, b), run)

    def _select(self, node: Any) -> Compiled:
        """Evaluate both values: TVM does not define whether they are."""
        dtype, _ = type_of(node)
        nodes = (node.condition, node.true_value, node.false_value)
        parts = [self.part(part) for part in nodes]

        def run(scope: Scope) -> Value:
            condition, yes, no = (part.run(scope) for part in parts)
            if uniform(condition):
                return yes if condition else no
            return np.where(condition, np.asarray(yes, dtype), np.asarray(no, dtype))

        return self.pure(("select",), parts, run)

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

    def place(self, buffer: Any, indices: Any) -> Callable[[Scope], Place]:
        """Return an access's memory, first element, type, and number of neighbours."""
        if len(indices) != 1:
            raise Unsupported(f"an index of {len(indices)} dimensions into {buffer.name}")
        index = indices[0]
        _, lanes = type_of(index)
        count = 1
        if type(index).__name__ == "Ramp" and getattr(index.stride, "value", 0) == 1:
            index, count = index.base, lanes
        run, key = self.compile(index), hash(buffer)

        def find(scope: Scope) -> Place:
            view: View = scope.get(key)
            at = run(scope)
            return view.memory, at + view.offset if view.offset else at, view.dtype, count

        return find

    def _call(self, node: Any) -> Compiled:
        return compile_call(self, node)


def _wide(value: Value, dtype: np.dtype[Any], lanes: int) -> Array:
    array = np.asarray(value, dtype)
    return np.broadcast_to(array, (lanes, array.shape[-1] if array.ndim else 1))
