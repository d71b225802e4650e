"""Asynchronous copies from global to shared memory (``cp.async``), group by group."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.simt.dtypes import Array, Value
from tests.simt.faults import KernelFault, Misaligned, Unsupported
from tests.simt.flat_memory import FlatMemory
from tests.simt.memory import WIDEST, Address, Either, Pointer
from tests.simt.scope import Scope

BYTE = np.dtype(np.uint8)
WHOLE = np.dtype((np.void, WIDEST))


@dataclass(slots=True)
class Copy:
    """Copies of one statement that have not arrived: of each, thread, group, place and bytes."""

    lanes: Array
    groups: Array
    memory: FlatMemory
    starts: Array
    data: Array


@dataclass(slots=True)
class Copies:
    """The copies in flight of the blocks that run, and how many groups each lane has closed."""

    closed: Array
    pending: list[Copy] = field(default_factory=list)

    def start(self, scope: Scope, target: Pointer, source: Address, size: Value) -> None:
        """``mt_cp_async_16``: ``size`` bytes, and zeros up to 16."""
        if isinstance(source, Either):
            amount = scope.full(size)
            for taken, one in source.parts(scope):
                inner = scope.narrow(taken)
                self.start(inner, target.narrowed(scope, taken), one, amount[taken])
            return
        memory, origin = target.memory, source.memory
        if not isinstance(memory, FlatMemory) or not memory.per_block:
            raise Unsupported("an asynchronous copy to something other than shared memory")
        if not isinstance(origin, FlatMemory) or origin.per_block:
            raise Unsupported("an asynchronous copy from something other than global memory")
        starts = _starts(scope, memory, target)
        data = _read(scope, origin, source, scope.full(size))
        memory.note_write(scope, starts, WIDEST)
        self._set_pending(memory, starts, True)
        groups = scope.of(self.closed)
        self.pending.append(Copy(scope.lanes, groups.copy(), memory, starts, data))

    def commit(self, scope: Scope) -> None:
        """``mt_cp_async_commit``: what was started belongs to one group."""
        self.closed[scope.lanes] += 1

    def wait(self, scope: Scope, left: Value) -> None:
        """``mt_cp_async_wait``: all but the last ``left`` groups of these threads arrive."""
        limit = np.full(len(self.closed), -1)
        limit[scope.lanes] = scope.of(self.closed) - left
        kept = []
        for copy in self.pending:
            done = copy.groups < limit[copy.lanes]
            if done.any():
                self._arrive(scope, copy, done)
            if not done.all():
                rest = ~done
                kept.append(
                    Copy(
                        copy.lanes[rest], copy.groups[rest], copy.memory,
                        copy.starts[rest], copy.data[rest],
                    )
                )  # fmt: skip
        self.pending = kept

    def _arrive(self, scope: Scope, copy: Copy, done: Array) -> None:
        """The bytes are there: for the thread itself now, for others after a barrier."""
        memory, starts = copy.memory, copy.starts[done]
        self._set_pending(memory, starts, False)
        among = np.zeros(len(self.closed), np.bool_)
        among[copy.lanes[done]] = True
        writers = scope if among[scope.lanes].all() else scope.narrow(among[scope.lanes])
        memory.note_write(writers, starts, WIDEST)
        memory.view(WHOLE)[starts // WIDEST] = copy.data[done].view(WHOLE)[:, 0]

    @staticmethod
    def _set_pending(memory: FlatMemory, starts: Array, state: bool) -> None:
        if memory.pending is None:
            memory.pending = np.zeros(-(-len(memory.data) // memory.unit), np.bool_)
        memory.pending[memory.units(starts, WIDEST)] = state


def _starts(scope: Scope, memory: FlatMemory, target: Pointer) -> Array:
    first = _bytes(target, "the target of an asynchronous copy")
    starts: Array = memory.start(scope, scope.full(first), BYTE, 1)
    memory.start(scope, scope.full(first) + WIDEST - 1, BYTE, 1)
    return starts


def _bytes(pointer: Pointer, what: str) -> Value:
    first = np.asarray(pointer.index, np.int64) * pointer.dtype.itemsize
    if np.any(first % WIDEST):
        raise Misaligned(f"{what} is not aligned to {WIDEST} bytes")
    return first if first.ndim else int(first)


def _read(scope: Scope, origin: FlatMemory, source: Pointer, size: Array) -> Array:
    """Return the bytes that each thread copies: [threads, 16]."""
    if np.any((size < 0) | (size > WIDEST)):
        raise KernelFault("an asynchronous copy of less than 0 or more than 16 bytes")
    data = np.zeros((scope.size, WIDEST), np.uint8)
    first = scope.full(_bytes(source, "the source of an asynchronous copy"))
    for amount in set(size[size > 0].tolist()):
        taken = size == amount
        every = bool(taken.all())
        inner, starts = (scope, first) if every else (scope.narrow(taken), first[taken])
        origin.start(inner, starts, BYTE, 1)
        origin.start(inner, starts + (amount - 1), BYTE, 1)
        whole = amount // origin.unit * origin.unit
        if whole and (origin.shadow is not None or origin.written is not None):
            origin.note_read(inner, starts, whole)
        if amount == WIDEST:
            data[taken] = origin.view(WHOLE)[starts // WIDEST].view(BYTE).reshape(-1, WIDEST)
        else:
            data[taken, :amount] = origin.data[starts[:, None] + np.arange(amount)]
    return data
