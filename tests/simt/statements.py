"""Statements of TensorIR as Python closures over a scope."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tests.simt.compiled import View
from tests.simt.dtypes import split, type_of, uniform
from tests.simt.expressions import Expressions
from tests.simt.faults import KernelFault, Unsupported
from tests.simt.flat_memory import FlatMemory
from tests.simt.local_memory import LocalMemory
from tests.simt.memory import WIDEST, Pointer
from tests.simt.scope import Scope
from tests.simt.usage import Usage

Run = Callable[[Scope], None]
SHARED = ("shared", "shared.dyn")
# Attributes that say nothing about what a program computes.
SILENT = {
    "pragma_unroll",
    "pragma_unroll_explicit",
    "realize_scope",
    "storage_alignment",
    "tirx.hint",
    "tirx.launch_bounds_min_blocks_per_sm",
}


@dataclass(slots=True)
class Region:
    """A kernel in the middle of host code: what its threads do, and the shared memory it needs."""

    body: Run = lambda _: None
    shared: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SHARED, 0))


class Statements:
    """Compiles statements; ``launch`` runs a region of threads that the host comes upon."""

    def __init__(self, launch: Callable[[Region, dict[str, Any], Scope], None]) -> None:
        self.usage = Usage()
        self.expressions = Expressions(self.usage)
        self._launch = launch
        self._region: Region | None = None

    def compile(self, node: Any) -> Run:
        """The closure of a statement."""
        kind = type(node).__name__
        method = getattr(self, f"_{kind.lower()}", None)
        if method is None:
            raise Unsupported(f"the statement {kind}: {node}")
        run: Run = method(node)
        return run if kind in ("SeqStmt", "For", "While", "AttrStmt") else _named(run, node)

    def _seqstmt(self, node: Any) -> Run:
        parts = [self.compile(part) for part in node.seq]

        def run(scope: Scope) -> None:
            for part in parts:
                part(scope)

        return run

    def _evaluate(self, node: Any) -> Run:
        if type(node.value).__name__ == "IntImm":
            return lambda _: None
        value = self.expressions.compile(node.value)

        def run(scope: Scope) -> None:
            value(scope)

        return run

    def _bind(self, node: Any) -> Run:
        value, key = self.expressions.compile(node.value), hash(node.var)
        dtype = type_of(node.var)[0] if hasattr(node.var.ty, "dtype") else None

        def run(scope: Scope) -> None:
            bound = value(scope)
            # What was loaded may be a view of registers that change later.
            scope.bind(key, bound.astype(dtype) if isinstance(bound, np.ndarray) else bound)

        return run

    def _bufferstore(self, node: Any) -> Run:
        place = self.expressions.place(node.buffer, node.indices)
        value = self.expressions.compile(node.value)
        self.expressions.note(node.buffer, writes=True)

        def run(scope: Scope) -> None:
            memory, index, dtype, count = place(scope)
            memory.store(scope, index, dtype, count, value(scope))

        return run

    def _ifthenelse(self, node: Any) -> Run:
        condition = self.expressions.compile(node.condition)
        then = self.compile(node.then_case)
        other = self.compile(node.else_case) if node.else_case is not None else None

        def run(scope: Scope) -> None:
            taken = condition(scope)
            if uniform(taken) or taken.all() or not taken.any():
                if taken if uniform(taken) else taken.all():
                    then(scope)
                elif other is not None:
                    other(scope)
                return
            then(scope.narrow(taken))
            if other is not None:
                other(scope.narrow(~taken))

        return run

    def _for(self, node: Any) -> Run:
        first, extent = self.expressions.compile(node.min), self.expressions.compile(node.extent)
        step = 1 if node.step is None else int(node.step.value)
        body, key = self.compile(node.body), hash(node.loop_var)

        def run(scope: Scope) -> None:
            start, many = _common(first(scope)), _common(extent(scope))
            if uniform(many) and uniform(start):
                for i in range(start, start + many * step, step):
                    scope.bind(key, i)
                    body(scope)
                return
            inner, left = scope, -1
            for i in range(int(np.max(many))):
                active = scope.full(many) > i
                if (now := int(active.sum())) != left:
                    inner, left = scope.narrow(active), now
                at = start + i * step
                inner.bind(key, at if uniform(at) else at[active])
                body(inner)

        return run

    def _while(self, node: Any) -> Run:
        condition, body = self.expressions.compile(node.condition), self.compile(node.body)

        def run(scope: Scope) -> None:
            inner = scope
            while True:
                going = inner.full(condition(inner))
                if not going.any():
                    return
                if not going.all():
                    inner = scope.narrow(np.isin(scope.lanes, inner.lanes[going]))
                body(inner)

        return run

    def _allocbuffer(self, node: Any) -> Run:
        buffer, kind = node.buffer, str(node.buffer.scope())
        dtype, lanes = split(str(buffer.ty.dtype))
        key, name = hash(buffer), str(buffer.name) or f"{kind} {buffer.ty.dtype} buffer"
        if self._region is None and kind in ("global", ""):
            return self._workspace(buffer, key, name, dtype)
        if self._region is None or kind not in ("local", *SHARED):
            raise Unsupported(f"memory of scope {kind!r} for {name}")
        elements = lanes * prod(_fixed(extent) for extent in buffer.ty.shape)
        if kind == "local":
            return lambda scope: scope.bind(
                key, View(LocalMemory(name, dtype, elements, scope), dtype)
            )
        size = elements * dtype.itemsize
        self._region.shared[kind] += size
        return lambda scope: scope.bind(key, View(self._shared(scope, key, name, size), dtype))

    def _workspace(self, buffer: Any, key: int, name: str, dtype: np.dtype[Any]) -> Run:
        """Global memory that one kernel leaves to the next."""
        extents = [self.expressions.compile(extent) for extent in buffer.ty.shape]

        def run(scope: Scope) -> None:
            size = prod(int(extent(scope)) for extent in extents) * dtype.itemsize
            unit = self.usage.unit(self.usage.root(key))
            written = np.zeros(-(-size // unit), np.bool_)
            data = np.zeros(size, np.uint8)
            scope.bind(key, View(FlatMemory(name, data, unit, extent=size, written=written), dtype))

        return run

    def _shared(self, scope: Scope, key: int, name: str, size: int) -> FlatMemory:
        """Shared memory: made once for the blocks that run, wherever it is declared."""
        chunk = scope.chunk
        assert chunk is not None
        if key not in chunk.memory:
            padded = -(-size // WIDEST) * WIDEST
            total = padded * chunk.blocks
            unit = self.usage.unit(self.usage.root(key))
            memory = chunk.memory[key] = FlatMemory(
                name,
                np.zeros(total, np.uint8),
                unit,
                extent=size,
                per_block=padded,
                written=np.zeros(total // unit, np.bool_),
            )
            memory.begin_launch()
        return chunk.memory[key]

    def _declbuffer(self, node: Any) -> Run:
        buffer, data = node.buffer, node.data
        dtype, _ = split(str(buffer.ty.dtype))
        key = hash(buffer)
        source = data.args[0] if type(data).__name__ == "Call" else data
        self.usage.alias(key, hash(source))
        pointer = self.expressions.compile(data)

        def run(scope: Scope) -> None:
            at: Pointer = pointer(scope)
            offset = at.index * at.dtype.itemsize
            scope.bind(key, View(at.memory, dtype, offset // dtype.itemsize))

        return run

    def _attrstmt(self, node: Any) -> Run:
        if node.attr_key == "thread_extent":
            return self._kernel(node) if self._region is None else self._thread(node)
        if node.attr_key not in SILENT:
            raise Unsupported(f"the attribute {node.attr_key}")
        return self.compile(node.body)

    def _kernel(self, node: Any) -> Run:
        """Compile the launch of a kernel by the host."""
        extents = {tag: self.expressions.compile(extent) for tag, extent in extents_of(node)}
        region = self._region = Region()
        region.body = self._thread(node)
        self._region = None
        return lambda scope: self._launch(
            region, {tag: extent(scope) for tag, extent in extents.items()}, scope
        )

    def _thread(self, node: Any) -> Run:
        body, key, tag = self.compile(node.body), hash(node.node.var), str(node.node.thread_tag)
        dtype, _ = type_of(node.node.var)

        def run(scope: Scope) -> None:
            assert scope.chunk is not None
            scope.bind(key, scope.of(scope.chunk.axis(tag)).astype(dtype))
            body(scope)

        return run


def extents_of(node: Any) -> Iterator[tuple[str, Any]]:
    """The launch extents that a region declares."""
    if type(node).__name__ == "AttrStmt" and node.attr_key == "thread_extent":
        yield str(node.node.thread_tag), node.value
    for part in ("body", "then_case", "else_case"):
        if (inner := getattr(node, part, None)) is not None:
            yield from extents_of(inner)
    for inner in getattr(node, "seq", ()):
        yield from extents_of(inner)


def _fixed(extent: Any) -> int:
    if type(extent).__name__ != "IntImm":
        raise Unsupported(f"an allocation of {extent} elements")
    return int(extent.value)


def _common(value: Any) -> Any:
    """An array whose elements are all the same as the one number that they are."""
    if uniform(value):
        return value
    first = value[0]
    return int(first) if (value == first).all() else value


def _named(run: Run, node: Any) -> Run:
    """``run``, saying in which statement what is wrong was found."""

    def guarded(scope: Scope) -> None:
        try:
            run(scope)
        except KernelFault as fault:
            if not fault.statement:
                fault.statement = _text(node)
            raise

    return guarded


# Lines of a printed statement that only declare what it uses, and the source of what it calls.
DECLARATION = re.compile(r"#|\w+ = T\.(Buffer\(|\w+\(\)$)")
SOURCE = re.compile(r', source_code=".*"')


def _text(node: Any) -> str:
    """A statement as one reads it."""
    lines = [line for line in str(node).splitlines() if not DECLARATION.match(line)]
    return SOURCE.sub("", "\n".join(lines)).strip()[:400]
