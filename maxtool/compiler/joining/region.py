"""A parallel region: statements that all threads run, with barriers where one needs another.

Each kernel is a list of statements. A parallel loop is shared by the threads, and what is between
such loops is done by the first thread, in a loop that the others have no part in. Scalars are
computed by every thread. A barrier stands where a statement reads what another thread may have
written since the last barrier, or writes what one may have read or written; between kernels that
are independent there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import tvm
from tvm import tirx
from tvm_ffi import structural_walk

from maxtool.compiler.kernels.cpu.builder import ANY_LENGTH
from maxtool.compiler.kernels.cpu.subroutines import written_by

Stmt: TypeAlias = Any  # tvm ships no types
Buffer: TypeAlias = Any

LAUNCH = "pragma_parallel_launch_point"
BARRIER = "pragma_parallel_barrier_when_finish"

# Memory by the identity of its buffer.
Memory: TypeAlias = int


class CannotJoinError(Exception):
    """A kernel, or a run of kernels, that cannot be a region: each is called by itself."""


@dataclass(frozen=True)
class Part:
    """Part of a kernel, between which and others a barrier may be needed.

    Attributes:
        statement: What is run.
        alone: Whether the first thread does it alone.
        defines: Whether it computes a scalar that later parts read.
    """

    statement: Stmt
    alone: bool = False
    defines: bool = False

    @cached_property
    def loads(self) -> frozenset[Memory]:
        """The memory that it reads."""
        return self._named(tvm.ir.TensorLoad, "source")

    @cached_property
    def stores(self) -> frozenset[Memory]:
        """The memory that it writes, or that is written by what it calls."""
        called: list[Buffer] = []
        structural_walk(self.statement, (tvm.ir.Call, lambda call: called.extend(written_by(call))))
        return self._named(tirx.BufferStore, "buffer") | frozenset(map(hash, called))

    @cached_property
    def kept(self) -> frozenset[Memory]:
        """The memory that it takes for itself."""
        return self._named(tirx.AllocBuffer, "buffer")

    def _named(self, node_type: Any, field_name: str) -> frozenset[Memory]:  # noqa: ANN401
        """The memory that nodes of a type have in a field."""
        found: list[Any] = []
        structural_walk(self.statement, (node_type, found.append))
        return frozenset(hash(getattr(node, field_name)) for node in found)

    def waits_for(self, before: Part, aliases: Mapping[Memory, Memory]) -> bool:
        """Return whether all threads must have done ``before`` when this begins."""
        if self.alone and before.alone:
            return False
        loads, stores, loaded, stored = (
            {aliases.get(each, each) for each in memory}
            for memory in (self.loads, self.stores, before.loads, before.stores)
        )
        return bool(stored & (loads | stores) or loaded & stores)


@dataclass
class Region:
    """A parallel region under construction.

    Attributes:
        aliases: What memory is taken for, where it may be the same as other memory.
    """

    aliases: Mapping[Memory, Memory] = field(default_factory=dict)
    _done: list[Stmt] = field(default_factory=list)
    _open: list[Part] = field(default_factory=list)

    def add(self, parts: Sequence[Part]) -> None:
        """Add a kernel."""
        for part in parts:
            if any(part.waits_for(before, self.aliases) for before in self._open):
                self._wait(part)
            self._done.append(part.statement)
            self._open.append(part)

    def _wait(self, part: Part) -> None:
        """Let all threads wait for each other behind the last loop."""
        late = [one for one in self._after_loop() if part.waits_for(one, self.aliases)]
        if late:
            raise CannotJoinError("what a scalar was computed from is overwritten")
        at = max(i for i, done in enumerate(self._done) if not isinstance(done, tirx.Bind))
        self._done[at] = _attribute(BARRIER, self._done[at])
        self._open = self._after_loop()

    def _after_loop(self) -> list[Part]:
        """The scalars that were computed behind the last loop."""
        after: list[Part] = []
        for part in reversed(self._open):
            if not part.defines:
                break
            after.insert(0, part)
        return after

    @property
    def statement(self) -> Stmt:
        """The statement that runs the region."""
        return _attribute(LAUNCH, sequence(self._done))


def parts_of(statements: Sequence[Stmt]) -> list[Part]:
    """The parts of a kernel in order.

    Of a loop that one thread would run if it is short, the form for all threads is a part: they are
    there already.

    Raises:
        CannotJoinError: If it has a parallel loop inside another statement, or what one thread
            keeps to itself would be needed by others.
    """
    parts, alone = list[Part](), list[Stmt]()

    def finish() -> None:
        if alone:
            parts.append(Part(_on_first_thread(alone), alone=True))
            alone.clear()

    for statement in map(_of_any_length, statements):
        if isinstance(statement, tirx.Bind):
            scalar = Part(statement, defines=True)
            if scalar.loads:
                finish()
            parts.append(scalar)
        elif _is_parallel(statement):
            finish()
            parts.append(Part(statement))
        elif _has_parallel_loop(statement):
            raise CannotJoinError("a parallel loop inside another statement")
        else:
            alone.append(statement)
    finish()
    _check_private(parts)
    return parts


def flattened(statement: Stmt) -> Iterator[Stmt]:
    """Yield the statements of nested sequences."""
    if isinstance(statement, tirx.SeqStmt):
        for inner in statement.seq:
            yield from flattened(inner)
    else:
        yield statement


def sequence(statements: Sequence[Stmt]) -> Stmt:
    """Statements as one, which is a sequence only if there are several."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def _check_private(parts: Sequence[Part]) -> None:
    """Refuse parts that read or write what another one keeps on its stack or in registers."""
    for part in parts:
        others = [other.loads | other.stores for other in parts if other is not part]
        if any(part.kept & other for other in others):
            raise CannotJoinError("one thread needs what another keeps in its registers")


def _of_any_length(statement: Stmt) -> Stmt:
    """The parallel loop of a statement that has it twice, once for one thread if it is short."""
    if not isinstance(statement, tirx.IfThenElse):
        return statement
    loop = statement.else_case
    return loop if _is_parallel(loop) and ANY_LENGTH in loop.annotations else statement


def _is_parallel(statement: Stmt) -> bool:
    return isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.PARALLEL


def _has_parallel_loop(statement: Stmt) -> bool:
    loops: list[Stmt] = []
    structural_walk(statement, (tirx.For, loops.append))
    return any(map(_is_parallel, loops))


def _on_first_thread(statements: Sequence[Stmt]) -> Stmt:
    """Run statements on one thread: the one that gets the first of two iterations.

    A loop of one iteration would be taken for the iteration itself by TVM's passes.
    """
    first = tirx.Var("first", "int32")
    chosen = tirx.IfThenElse(first == tirx.IntImm("int32", 0), sequence(statements), None)
    zero, two = (tirx.IntImm("int32", value) for value in (0, 2))
    return tirx.For(first, zero, two, tirx.ForKind.PARALLEL, chosen)


def _attribute(key: str, body: Stmt) -> Stmt:
    node = tirx.IntImm("int32", 0)
    return tirx.AttrStmt(node, key, tirx.IntImm("int32", 1), body)
