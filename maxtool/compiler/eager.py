"""Eager operations, each compiled when it is first used.

First for the sizes at hand; once a size has changed, for any size in its place, so that a loop over
lengths compiles twice and not each time.

What only gives elements another shape or order is no work for a compiler: NumPy copies it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import Lock
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from maxtool.compiler.passing import aligned_copy
from maxtool.compiler.placement import physical
from maxtool.compiler.program import Program
from maxtool.compiler.targets import Target
from maxtool.errors import CompilationFailed
from maxtool.graph import Graph, Tensor, TensorType
from maxtool.graph.ops import OPS
from maxtool.graph.ops.slicing import Range

Array: TypeAlias = np.ndarray[Any, Any]
Sizes: TypeAlias = "tuple[tuple[int, ...], ...]"
V = TypeVar("V")

# Programs that are kept; beyond them, the one that was not used for the longest time is dropped.
KEPT = 512


class EagerPrograms:
    """The programs of eager operations. Threads may share it.

    Args:
        targets: What to compile for, by the kind of device.
        kept: How many programs are kept.
    """

    def __init__(self, targets: Mapping[str, Target], kept: int = KEPT) -> None:
        self._targets = targets
        self._programs: _Recent[Program] = _Recent(kept)
        self._varying: _Recent[_Varying] = _Recent(kept)
        self._compiling = Lock()

    def __len__(self) -> int:
        return len(self._programs)

    def evaluate(
        self,
        op: str,
        operands: Sequence[Tensor],
        attributes: Mapping[str, Any],
        results: Sequence[TensorType],
    ) -> tuple[Tensor, ...]:
        """Run one operation on concrete operands, of which none is changed."""
        if all(0 in kind.shape for kind in results):
            return tuple(_empty(kind) for kind in results)
        if op in VIEWS and operands[0].device.is_cpu():
            array, (kind,) = operands[0].to_numpy(), results
            return (Tensor(aligned_copy(VIEWS[op](array, **attributes)), device=kind.device),)
        program = self._program(op, [operand.type for operand in operands], attributes)
        return program.run("eager", operands, program.bind({}), results)

    def _program(
        self, op: str, types: Sequence[TensorType], attributes: Mapping[str, Any]
    ) -> Program:
        options = tuple(sorted(attributes.items()))
        sizes = tuple(kind.shape.static() for kind in types)
        structure = (
            op,
            *((kind.dtype, kind.rank, physical(kind.device)) for kind in types),
            options,
        )
        varying = self._varying.get(structure, lambda: _Varying(sizes))
        for shapes in dict.fromkeys((varying.named(sizes), sizes)):
            general = [
                TensorType(kind.dtype, one, physical(kind.device))
                for kind, one in zip(types, shapes, strict=True)
            ]
            found = self._found((structure, shapes), op, general, attributes)
            if found is not None:
                return found
        raise CompilationFailed(f"no kernel for {op} of {', '.join(map(str, types))}")

    def _found(
        self,
        key: Hashable,
        op: str,
        types: Sequence[TensorType],
        attributes: Mapping[str, Any],
    ) -> Program | None:
        """The program for these types; None if the operation does not take sizes with names."""
        if (found := self._programs.find(key)) is not None:
            return found
        try:
            results = OPS[op].infer(*types, **attributes)
        except (TypeError, ValueError):
            return None
        with self._compiling:
            return self._programs.get(key, lambda: self._build(op, types, attributes, results))

    def _build(
        self,
        op: str,
        types: Sequence[TensorType],
        attributes: Mapping[str, Any],
        results: Sequence[TensorType],
    ) -> Program:
        graph = Graph("eager", input_types=types)
        with graph:
            graph.output(*graph.add_node(op, graph.inputs, attributes, results))
        return Program([graph], self._targets)


class _Varying:
    """Which sizes of the operands of one structure have varied; 0 and 1 have rules of their own."""

    def __init__(self, first: Sizes) -> None:
        self._first = first
        self._places: set[tuple[int, int]] = set()

    def named(self, sizes: Sizes) -> tuple[tuple[int | str, ...], ...]:
        """The sizes, with a name for each that has varied; equal ones have the same name."""
        every = [(i, axis) for i, shape in enumerate(sizes) for axis in range(len(shape))]
        changed = {(i, axis) for i, axis in every if sizes[i][axis] != self._first[i][axis]}
        self._places |= changed
        general = [(i, axis) for i, axis in every if (i, axis) in self._places]
        distinct = dict.fromkeys(sizes[i][axis] for i, axis in general if sizes[i][axis] > 1)
        names = {size: f"n{number}" for number, size in enumerate(distinct)}
        return tuple(
            tuple(
                names.get(size, size) if (i, axis) in self._places else size
                for axis, size in enumerate(shape)
            )
            for i, shape in enumerate(sizes)
        )


class _Recent(Generic[V]):
    """Values by key, of which those that were used last are kept."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def find(self, key: Hashable) -> V | None:
        """The value of a key, if it is kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key, made if there is none; two threads may both make it."""
        found = self.find(key)
        if found is not None:
            return found
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._kept:
                self._values.popitem(last=False)
        return value


def _empty(kind: TensorType) -> Tensor:
    return Tensor(np.empty(kind.shape.static(), kind.dtype.to_numpy()), device=kind.device)


def _window(one: Range) -> slice:
    start, size = int(one.start), int(one.size)
    stop = start + one.step * size
    return slice(start, stop if stop >= 0 else None, one.step) if size else slice(0)


VIEWS: dict[str, Callable[..., Array]] = {
    "broadcast_to": lambda array, shape: np.broadcast_to(array, shape.static()),
    "permute": lambda array, dims: array.transpose(dims),
    "reshape": lambda array, shape: array.reshape(shape.static()),
    "slice": lambda array, ranges: array[tuple(map(_window, ranges))],
}
