"""Storage of each weight of an artifact: packed for the kernels that read it, or plain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from maxtool.compiler.fusion.node_index import NodeIndex
from maxtool.compiler.packing import pack_linear, packed_shape
from maxtool.compiler.placement import Placement
from maxtool.compiler.storage_types import bits, stored
from maxtool.dtype import DType
from maxtool.graph import CallNode, Graph, Node, Tensor
from maxtool.runtime.loader.memory import aligned

# Operations whose second operand is a weight that their kernel reads packed, and its rank.
PACKED_OPERANDS = {"linear": (1, 2), "embedding": (1, 2), "expert_linear": (1, 3)}


@dataclass(frozen=True, slots=True)
class WeightStorage:
    """The storage of one weight in an artifact."""

    name: str  # in full
    dtype: DType
    shape: tuple[int, ...]  # in the module
    block: int | None  # output features in a packed block; None if it is stored as it is

    @property
    def stored_dtype(self) -> str:
        """Element type of the kernel's parameter."""
        return stored(self.dtype)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape in the file and in the kernel's parameter."""
        if self.block is None:
            return self.shape
        *experts, n, k = self.shape
        return *experts, *packed_shape(n, k, self.block)

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return prod(self.stored_shape) * self.dtype.size_in_bytes

    def store(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """``values``, of the module's shape and any float type, as they are stored."""
        cast = values.astype(self.dtype.to_numpy(), copy=False)
        laid = cast if self.block is None else self._packed(cast, self.block)
        return bits(laid)

    def restore(self, stored: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Undo :meth:`store`: a copy of the values, of the module's shape and element type."""
        values = np.ascontiguousarray(stored).view(self.dtype.to_numpy())
        if self.block is not None:
            *outer, blocks, k, rows = self.stored_shape
            values = values.swapaxes(-1, -2).reshape(*outer, blocks * rows, k)
            values = values[..., : self.shape[-2], :]
        return values.reshape(self.shape).copy()

    def _packed(self, values: np.ndarray[Any, Any], block: int) -> np.ndarray[Any, Any]:
        """The matrix, or one after the other those of all experts."""
        if values.ndim == 2:
            return pack_linear(values, block)
        laid = aligned(self.stored_shape, values.dtype, np.empty)
        for matrix, out in zip(values, laid, strict=True):
            pack_linear(matrix, block, out=out)
        return laid


def plan_storage(
    graphs: Iterable[Graph], placement: Placement, rewritten: Callable[[Graph], NodeIndex]
) -> dict[str, WeightStorage]:
    """Return the storage of every weight that the graphs need, sorted by name.

    A weight is packed when every use of it, in any graph, reads it packed. ``rewritten`` gives the
    nodes of a graph, or of a subgraph, as they are lowered.
    """
    uses: dict[str, set[bool]] = defaultdict(set)
    types: dict[str, Tensor] = {}
    known: dict[Graph, Mapping[int, set[bool]]] = {}
    for graph in graphs:
        roles = _roles(graph, rewritten, known)
        for name, value in graph.weight_values.items():
            uses[name] |= roles[id(value)]
            types[name] = value
    return {
        name: WeightStorage(
            name,
            types[name].dtype,
            types[name].shape.static(),
            placement.target(types[name].device).packing if uses[name] == {True} else None,
        )
        for name in sorted(uses)
    }


def _reads_packed(node: Node, index: int) -> bool:
    """Return whether a kernel takes that operand packed: matrices that are added up in float32."""
    matrix = PACKED_OPERANDS.get(node.op) == (index, node.inputs[index].rank)
    return matrix and DType.float64 not in (node.inputs[0].dtype, node.inputs[index].dtype)


def _roles(
    graph: Graph,
    rewritten: Callable[[Graph], NodeIndex],
    known: dict[Graph, Mapping[int, set[bool]]],
) -> defaultdict[int, set[bool]]:
    """Return for each value of a graph whether it is read packed, plain, or both."""
    roles: defaultdict[int, set[bool]] = defaultdict(set)
    for node in rewritten(graph).nodes:
        for index, operand in enumerate(node.inputs):
            packed = not isinstance(node, CallNode) and _reads_packed(node, index)
            roles[id(operand)].add(packed)
        if isinstance(node, CallNode):
            if node.callee not in known:
                known[node.callee] = _roles(node.callee, rewritten, known)
            below = known[node.callee]
            for passed, parameter in zip(node.weights, node.callee.parameters(), strict=True):
                roles[id(passed)] |= below[id(parameter)]
    for value in graph.outputs:
        roles[id(value)].add(False)
    return roles
