"""The nodes of a graph in order, with the producer and the readers of each value."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from maxtool.graph import CallNode, Node, Tensor

AnyNode: TypeAlias = Node | CallNode


class NodeIndex:
    """The nodes of a graph in slots, as they run; it stays true while nodes are replaced.

    Args:
        nodes: The nodes.
        outputs: Values that the graph gives.
        constants: Its constants, each with the value that it has in the graph.
    """

    def __init__(
        self,
        nodes: Iterable[AnyNode],
        outputs: Iterable[Tensor],
        constants: Iterable[tuple[Tensor, Tensor]] = (),
    ) -> None:
        self._constants = {id(value): constant for constant, value in constants}
        self._slots: list[AnyNode | None] = []
        self._slot_of: dict[int, int] = {}
        self._producers: dict[int, AnyNode] = {}
        self._readers: defaultdict[int, list[AnyNode]] = defaultdict(list)
        self._outputs = Counter(id(value) for value in outputs)
        for slot, node in enumerate(nodes):
            self._slots.append(None)
            self._insert(node, slot)

    @property
    def nodes(self) -> list[AnyNode]:
        """The nodes, in order."""
        return [node for node in self._slots if node is not None]

    def __len__(self) -> int:
        """Return how many slots there are, empty ones included."""
        return len(self._slots)

    def __getitem__(self, slot: int) -> AnyNode | None:
        """Return the node of a slot; None if it is empty."""
        return self._slots[slot]

    def slot(self, node: AnyNode) -> int:
        """Return the slot of a node."""
        return self._slot_of[id(node)]

    def producer(self, value: Tensor) -> AnyNode | None:
        """Return the node that computes a value; None for inputs, weights and constants."""
        return self._producers.get(id(value))

    def number(self, value: Tensor) -> float | None:
        """Return the number that all elements of a value are, if it is known and there is one."""
        constant = self._constants.get(id(value))
        if constant is None or value.shape.volume() != 1:
            return None
        return float(constant.to_numpy().item())

    def readers(self, value: Tensor) -> list[AnyNode]:
        """Return the nodes that read a value, in order, each as often as it reads it."""
        return sorted(self._readers.get(id(value), ()), key=self.slot)

    def uses(self, value: Tensor) -> int:
        """Return how often a value is read; an output of the graph is read once more."""
        return len(self._readers.get(id(value), ())) + self._outputs[id(value)]

    def is_output(self, value: Tensor) -> bool:
        """Return whether a value is an output of the graph."""
        return id(value) in self._outputs

    def remove(self, node: AnyNode) -> None:
        """Take a node out of its slot."""
        self._slots[self._slot_of.pop(id(node))] = None
        for value in _operands(node):
            self._readers[id(value)].remove(node)
        for value in node.outputs:
            del self._producers[id(value)]

    def replace(self, replaced: Sequence[Node], node: Node, slot: int) -> None:
        """Put a node into the slot of one of the nodes that it replaces."""
        for other in replaced:
            self.remove(other)
        self._insert(node, slot)

    def _insert(self, node: AnyNode, slot: int) -> None:
        self._slots[slot] = node
        self._slot_of[id(node)] = slot
        for value in _operands(node):
            self._readers[id(value)].append(node)
        for value in node.outputs:
            self._producers[id(value)] = node


def _operands(node: AnyNode) -> tuple[Tensor, ...]:
    return (*node.inputs, *node.weights) if isinstance(node, CallNode) else node.inputs
