"""Memory of buffers and pointers, and the rules of every access."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from tests.simt.dtypes import Array, Value
from tests.simt.faults import Misaligned
from tests.simt.scope import Scope

# Bytes of the widest access, and what every allocation is aligned to.
WIDEST = 16


class Memory(Protocol):
    """Memory of buffers and pointers. Indices count elements of ``dtype``."""

    def load(self, scope: Scope, index: Value, dtype: np.dtype[Any], count: int) -> Value:
        """``count`` neighbouring elements: [threads], or [count, threads] if more than one."""

    def store(
        self, scope: Scope, index: Value, dtype: np.dtype[Any], count: int, value: Value
    ) -> None:
        """Write ``count`` neighbouring elements."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address: an element of some type in a memory."""

    memory: Memory
    index: Value
    dtype: np.dtype[Any]

    def load(self, scope: Scope, dtype: np.dtype[Any], count: int) -> Value:
        """``count`` elements of ``dtype`` from here on."""
        return self.memory.load(scope, self._in(dtype), dtype, count)

    def store(self, scope: Scope, dtype: np.dtype[Any], count: int, value: Value) -> None:
        """Write ``count`` elements of ``dtype`` from here on."""
        self.memory.store(scope, self._in(dtype), dtype, count, value)

    def _in(self, dtype: np.dtype[Any]) -> Value:
        mine, its = self.dtype.itemsize, dtype.itemsize
        index = self.index
        if mine < its and np.any(np.asarray(index) * mine % its):
            raise Misaligned(f"a pointer to {self.dtype} used as one to {dtype} is not aligned")
        return index * mine // its if mine != its else index

    def narrowed(self, scope: Scope, taken: Array) -> Pointer:
        """The same for some threads of a scope."""
        of_each = isinstance(self.index, np.ndarray) and self.index.shape[-1] == scope.size
        return replace(self, index=self.index[..., taken]) if of_each else self


@dataclass(frozen=True, slots=True)
class Either:
    """One of two addresses, of each thread: the first where ``taken`` holds."""

    taken: Array
    first: Address
    second: Address

    def narrowed(self, scope: Scope, taken: Array) -> Either:
        """The same for some threads of a scope."""
        parts = (one.narrowed(scope, taken) for one in (self.first, self.second))
        return Either(self.taken[taken], *parts)

    def parts(self, scope: Scope) -> Iterator[tuple[Array, Address]]:
        """Each address, and before it which threads have it; there are some."""
        for taken, one in ((self.taken, self.first), (~self.taken, self.second)):
            if taken.any():
                yield taken, one.narrowed(scope, taken)


Address: TypeAlias = Pointer | Either


def require_aligned(index: Value, dtype: np.dtype[Any], count: int, name: str) -> None:
    """A vector access starts at a multiple of its own size."""
    if count == 1:
        return
    step = max(1, min(dtype.itemsize * count, WIDEST) // dtype.itemsize)
    if np.any(np.asarray(index) % step):
        raise Misaligned(f"{count} elements of {dtype} of {name} at element {_some(index, step)}")


def _some(index: Value, step: int) -> int:
    result = np.asarray(index).ravel()
    return int(result[result % step != 0][0])


def outside(scope: Scope, name: str, index: Value, count: int, limit: int) -> str:
    """Return the message about an access that leaves its buffer."""
    flat = np.asarray(index)
    bad = (flat < 0) | (flat + count > limit)
    at = tuple(np.argwhere(bad)[0]) if flat.ndim else ()
    lane = int(at[-1]) if at else 0
    what = f"element {int(flat[at])}" + (f" and {count - 1} more" if count > 1 else "")
    return f"{thread_name(scope, lane)} uses {what} of {name}, which has {limit}"


def thread_name(scope: Scope, at: int) -> str:
    """The thread at a place of the arrays of a scope, for messages."""
    if scope.chunk is None:
        return "the host"
    return scope.chunk.name(int(scope.lanes[min(at, scope.size - 1)]))
