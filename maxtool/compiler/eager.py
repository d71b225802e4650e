"""Eager operations, each compiled when it is first used.

First for the sizes at hand; once sizes have changed, for any sizes in their place
(``size_naming.py``), so that calls with all sorts of sizes soon compile no more.

What only gives elements another shape, order or place is not work for a compiler: NumPy copies it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import Lock
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from maxtool.compiler.call_arguments import aligned_copy
from maxtool.compiler.numpy_moves import MOVES
from maxtool.compiler.placement import physical
from maxtool.compiler.program import Program
from maxtool.compiler.size_naming import Named, ObservedSizes
from maxtool.compiler.targets import Target
from maxtool.graph import Graph, Tensor, TensorType
from maxtool.graph.executor import Run
from maxtool.graph.ops import OPS

Array: TypeAlias = np.ndarray[Any, Any]
Types: TypeAlias = Sequence[TensorType]
V = TypeVar("V")

# Programs that are kept; beyond them, the one that was not used for the longest time is dropped.
KEPT = 512


class EagerPrograms:
    """The programs of eager operations, of which so many are kept. Threads may share it."""

    def __init__(self, targets: Mapping[str, Target], kept: int = KEPT) -> None:
        self._targets = targets
        self._programs: _Recent[Program] = _Recent(kept)
        self._varying: _Recent[ObservedSizes] = _Recent(kept)
        self._compiling = Lock()

    def __len__(self) -> int:
        return len(self._programs)

    def prepared(self, op: str, types: Types, attributes: Mapping[str, Any], results: Types) -> Run:
        """One operation as a function of operands of these types, of which it changes none."""
        if all(0 in tensor_type.shape for tensor_type in results):
            return lambda _operands: tuple(_empty(tensor_type) for tensor_type in results)
        if op in MOVES and all(tensor_type.device.is_cpu() for tensor_type in types):
            return _moving(op, attributes, results[0])
        program = self._program(op, types, attributes, results)
        return program.function("eager", program.bind({}), results)

    def _program(
        self, op: str, types: Types, attributes: Mapping[str, Any], results: Types
    ) -> Program:
        options = tuple(sorted(attributes.items()))
        operands = tuple(
            (tensor_type.dtype, tensor_type.rank, physical(tensor_type.device))
            for tensor_type in types
        )
        structure = (op, operands, options)

        def takes(sizes: Named) -> bool:
            return _gives(op, _of_sizes(types, sizes), attributes, sizes_of(types), results)

        varying = self._varying.get(structure, ObservedSizes)
        with self._compiling:
            sizes = varying.named(sizes_of(types), takes)
            general = _of_sizes(types, sizes)
            return self._programs.get(
                (structure, sizes), lambda: self._build(op, general, attributes)
            )

    def _build(self, op: str, types: Types, attributes: Mapping[str, Any]) -> Program:
        graph = Graph("eager", input_types=types)
        with graph:
            results = OPS[op].infer(*types, **attributes)
            graph.output(*graph.add_node(op, graph.inputs, attributes, results))
        return Program([graph], self._targets)


def sizes_of(types: Types) -> tuple[tuple[int, ...], ...]:
    """The shapes as numbers."""
    return tuple(tensor_type.shape.static() for tensor_type in types)


def _of_sizes(types: Types, sizes: Named) -> list[TensorType]:
    """The types with other sizes, on the devices where they are computed."""
    return [
        TensorType(tensor_type.dtype, shape, physical(tensor_type.device))
        for tensor_type, shape in zip(types, sizes, strict=True)
    ]


def _gives(
    op: str,
    general: Types,
    attributes: Mapping[str, Any],
    sizes: Sequence[tuple[int, ...]],
    results: Types,
) -> bool:
    """Return whether an operation takes symbolic sizes, and would give these shapes."""
    try:
        inferred = OPS[op].infer(*general, **attributes)
    except (TypeError, ValueError):
        return False
    numbers = {
        str(dim): size
        for tensor_type, shape in zip(general, sizes, strict=True)
        for dim, size in zip(tensor_type.shape, shape, strict=True)
    }
    return all(
        [dim.size(numbers) for dim in tensor_type.shape] == list(wanted.shape)
        for tensor_type, wanted in zip(inferred, results, strict=True)
    )


def _moving(op: str, attributes: Mapping[str, Any], tensor_type: TensorType) -> Run:
    """One of ``MOVES``, whose result is in memory of its own."""
    move = MOVES[op](**attributes)

    def run(operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
        moved = move(*(operand.to_numpy() for operand in operands))
        return (Tensor.holding(tensor_type, aligned_copy(moved)),)

    return run


class _Recent(Generic[V]):
    """Values by key, of which those that were used last are kept."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key, made if there is none; two threads may both make it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._kept:
                self._values.popitem(last=False)
        return value


def _empty(tensor_type: TensorType) -> Tensor:
    return Tensor(
        np.empty(tensor_type.shape.static(), tensor_type.dtype.to_numpy()),
        device=tensor_type.device,
    )
