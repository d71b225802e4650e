"""Operations that were applied before, to operands of the same types: ready to run again.

What they need, what comes of it and what computes it were worked out the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from maxtool.graph.graph import Graph
from maxtool.graph.tensor import Tensor

# From the operands as they were given to the results.
Ready: TypeAlias = Callable[[Sequence[Any]], tuple[Tensor, ...]]

# Applications that are kept; beyond them, the oldest are forgotten.
KEPT = 1024


class OperationCache(dict[Hashable, Ready]):
    """Cache of what runs operations applied before, outside of graphs. Threads may share it."""

    def keep(self, key: Hashable, ready: Ready) -> None:
        """Remember what runs an application."""
        self[key] = ready
        for oldest in list(self)[: max(0, len(self) - KEPT)]:
            self.pop(oldest, None)


REPEATING = OperationCache()


def key_of(name: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Hashable | None:
    """The key that applications share if one run serves them; None if it is for a single one.

    Tensors count by their types, numbers by their values.
    """
    if Graph.current() is not None:
        return None
    kinds: list[Hashable] = [name]
    for operand in operands:
        operand_type = type(operand)
        if operand_type is Tensor and operand.graph is None:
            kinds.append(operand.type)
        elif operand_type is float:
            kinds.append(operand.hex())  # which tells -0.0 from 0.0
        elif operand_type is int or operand_type is bool:
            kinds.append((operand_type, operand))
        else:
            return None
    return (*kinds, *attributes.items())
