"""Operations that a graph is a list of; its other nodes are calls of graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maxtool.graph.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operation: its name in the ops table, operands, attributes and results."""

    op: str
    inputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[Tensor, ...]
