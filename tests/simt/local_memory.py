"""Registers and local arrays: memory that every thread has for itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.simt.dtypes import Array, Value, uniform
from tests.simt.faults import OutOfBounds, Uninitialised, Unsupported
from tests.simt.memory import outside, require_aligned, thread_name
from tests.simt.scope import Scope


class LocalMemory:
    """An array that each thread has for itself, kept as [elements, threads].

    Args:
        name: Of the buffer, for messages.
        dtype: Of its elements.
        elements: How many.
        owner: The threads that have it.
    """

    def __init__(self, name: str, dtype: np.dtype[Any], elements: int, owner: Scope) -> None:
        self.name = name
        self.dtype = dtype
        self.owner = owner
        self.data = np.empty((elements, owner.size), dtype)
        # Whether all threads have written an element, and else which of them have.
        self.complete = [False] * elements
        self.written: dict[int, Array] = {}

    def load(self, scope: Scope, index: Value, dtype: np.dtype[Any], count: int) -> Value:
        if dtype.itemsize != self.dtype.itemsize:
            return self._load_as(scope, index, dtype, count)
        self._check(scope, index, dtype, count)
        data = self.data if dtype == self.dtype else self.data.view(dtype)
        inside = scope.inside(self.owner)
        if not uniform(index):
            rows = _rows(index, count)
            self._require_written(scope, rows)
            return data[rows, np.arange(scope.size) if inside is None else inside]
        if not all(self.complete[index : index + count]):
            self._require_written(scope, _rows(index, count))
        result = data[index] if count == 1 else data[index : index + count]
        return result if inside is None else result[..., inside]

    def store(
        self, scope: Scope, index: Value, dtype: np.dtype[Any], count: int, value: Value
    ) -> None:
        if dtype.itemsize != self.dtype.itemsize:
            self._store_as(scope, index, dtype, count, value)
            return
        self._check(scope, index, dtype, count)
        data = self.data if dtype == self.dtype else self.data.view(dtype)
        inside = scope.inside(self.owner)
        if uniform(index) and inside is None:
            data[index if count == 1 else slice(index, index + count)] = value
            for row in range(index, index + count):
                self.complete[row] = True
            return
        lanes = np.arange(scope.size) if inside is None else inside
        rows = _rows(index, count)
        data[rows, lanes] = value
        self._note_written(rows, lanes)

    def _check(self, scope: Scope, index: Value, dtype: np.dtype[Any], count: int) -> None:
        low, high = (index, index) if uniform(index) else (index.min(), index.max())
        if low < 0 or high + count > len(self.data):
            raise OutOfBounds(outside(scope, self.name, index, count, len(self.data)))
        require_aligned(index, dtype, count, self.name)

    def _note_written(self, rows: Value, lanes: Array) -> None:
        if all(self.complete):
            return
        for row in np.unique(rows):
            flags = self.written.setdefault(int(row), np.zeros(self.owner.size, np.bool_))
            chosen = np.broadcast_to(rows == row, np.broadcast_shapes(np.shape(rows), lanes.shape))
            flags[lanes[chosen.any(axis=0) if chosen.ndim > 1 else chosen]] = True
            self.complete[int(row)] |= bool(flags.all())

    def _require_written(self, scope: Scope, rows: Value) -> None:
        inside = scope.inside(self.owner)
        lanes = np.arange(scope.size) if inside is None else inside
        for row in np.unique(rows):
            if self.complete[row]:
                continue
            wanted: Array = np.broadcast_to(
                rows == row, np.broadcast_shapes(np.shape(rows), lanes.shape)
            )
            wanted = np.asarray(wanted.any(axis=0)) if wanted.ndim > 1 else wanted
            flags = self.written.get(int(row))
            missing: Array = wanted if flags is None else wanted & ~flags[lanes]
            if missing.any():
                who = thread_name(scope, int(np.flatnonzero(missing)[0]))
                raise Uninitialised(
                    f"{who} reads element {row} of {self.name}, which it never wrote"
                )

    def _load_as(self, scope: Scope, index: Value, dtype: np.dtype[Any], count: int) -> Value:
        """Elements of another width: whole elements of this array, put together or cut."""
        start, many = self._own(index, dtype, count)
        parts = [self.load(scope, start + i, self.dtype, 1) for i in range(many)]
        rows = np.ascontiguousarray(np.stack(parts, axis=-1)).view(dtype).T
        return rows[0] if count == 1 else rows

    def _store_as(
        self, scope: Scope, index: Value, dtype: np.dtype[Any], count: int, value: Value
    ) -> None:
        start, many = self._own(index, dtype, count)
        wide = np.broadcast_to(np.asarray(value, dtype), (count, scope.size))
        rows = np.ascontiguousarray(wide.T).view(self.dtype).T
        for i in range(many):
            self.store(scope, start + i, self.dtype, 1, rows[i])

    def _own(self, index: Value, dtype: np.dtype[Any], count: int) -> tuple[Value, int]:
        mine, its = self.dtype.itemsize, dtype.itemsize
        if its * count % mine or np.any(np.asarray(index) * its % mine):
            raise Unsupported(f"a part of an element of {self.name}")
        return index * its // mine, its * count // mine


def _rows(index: Value, count: int) -> Value:
    return index if count == 1 else index + np.arange(count)[:, None]
