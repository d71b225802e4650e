"""What a graph is a list of: operations, and calls of other graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maxtool.graph.tensor import Tensor

if TYPE_CHECKING:
    from maxtool.graph.graph import Graph


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operation: its name in the ops table, operands, attributes and results."""

    op: str
    inputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallNode:
    """A call of a subgraph.

    ``weights`` are values of the calling graph, one for each of ``callee.parameters()``.
    """

    callee: Graph
    inputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
