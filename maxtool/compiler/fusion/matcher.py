"""One matcher for all fusions: a fusion is a pattern of operations, and what it becomes.

A pattern is a tuple of operations (:func:`op`), the first of which is where the search starts.
Operands and results have names, and a name means the same value wherever it stands: so a pattern
follows values to their producers and to their readers, and joins nodes that read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from maxtool.compiler.fusion.node_index import AnyNode, NodeIndex
from maxtool.graph import Node, Tensor

Values: TypeAlias = tuple[Tensor, ...]
# The values of names; a name that begins with a star has any number of them.
Bindings: TypeAlias = Mapping[str, Values]


@dataclass(frozen=True, slots=True)
class Op:
    """One node of a pattern; :func:`op` makes it."""

    names: frozenset[str]
    operands: tuple[str, ...]  # the last name may have a star, and stands for all that are left
    results: tuple[str, ...]  # likewise
    commutes: bool
    kept: bool

    def bind(self, node: AnyNode, bindings: Bindings) -> Iterator[Bindings]:
        """Yield the bindings with the operands and results of a node that may be this one."""
        if not isinstance(node, Node) or node.op not in self.names:
            return
        for inputs in (node.inputs, node.inputs[::-1]) if self.commutes else (node.inputs,):
            bound = _bind(self.operands, inputs, bindings)
            bound = None if bound is None else _bind(self.results, node.outputs, bound)
            if bound is not None:
                yield bound

    def candidates(self, index: NodeIndex, bindings: Bindings) -> Sequence[AnyNode]:
        """Return the nodes that this one may be, by a value that is bound already."""
        for name in self.results:
            if name in bindings:
                producer = index.producer(bindings[name][0])
                return [] if producer is None else [producer]
        known = next(name for name in self.operands if bindings.get(name))
        return index.readers(bindings[known][0])


def op(names: str, values: str, *, commutes: bool = False, kept: bool = False) -> Op:
    """Make a node of a pattern: ``op("linear", "x weight -> product")``.

    Args:
        names: The operation, or those it may be, with spaces between them.
        values: The names of operands, an arrow, and those of results.
        commutes: Whether its two operands may be the other way round.
        kept: Whether the node stays where it is.
    """
    operands, results = (tuple(part.split()) for part in values.split("->"))
    return Op(frozenset(names.split()), operands, results, commutes, kept)


def _bind(names: Sequence[str], values: Values, bindings: Bindings) -> Bindings | None:
    """Return the bindings with values by their names; None if these mean others already."""
    rest = bool(names) and names[-1].startswith("*")
    if len(values) < len(names) - rest or (not rest and len(values) > len(names)):
        return None
    bound = dict(bindings)
    for position, name in enumerate(names):
        own = values[position:] if name.startswith("*") else values[position : position + 1]
        if not are_same(bound.setdefault(name, own), own):
            return None
    return bound


def are_same(first: Values, second: Values) -> bool:
    """Return whether two sequences are the same values in the same order."""
    return len(first) == len(second) and all(
        one is other for one, other in zip(first, second, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Match:
    """Nodes that a pattern was found in."""

    nodes: tuple[Node, ...]  # in the order of the pattern
    index: NodeIndex  # of the graph
    bindings: Bindings = field(repr=False)

    def __getitem__(self, name: str) -> Tensor:
        """Return the value of a name."""
        (value,) = self.bindings[name]
        return value

    def all(self, name: str) -> Values:
        """Return the values of a name with a star."""
        return self.bindings[name]


@dataclass(frozen=True, slots=True)
class Fusion:
    """A pattern of nodes, and the node that takes their place.

    Values that vanish with the nodes must be read by nothing else, nothing may read a result before
    it is computed, and no operand may come later: where that does not hold, nothing is replaced.
    """

    pattern: tuple[Op, ...]  # the search begins with the first
    rewrite: Callable[[Match], Node | None]  # gives the new node; None if a match does not fit
    early: bool = False  # whether that stands where the first of the old ones stood, not the last
    unique: bool = False  # whether it is replaced only if it is found in one way

    def apply(self, index: NodeIndex, is_here: Callable[[Node], bool]) -> None:
        """Replace what is found, in the order of the nodes, until nothing more is.

        ``is_here`` says whether a node is lowered for the target that the fusion is for.
        """
        for slot in range(len(index)):
            while (root := index[slot]) is not None and self._fuse(index, root, is_here):
                pass

    def _fuse(self, index: NodeIndex, root: AnyNode, is_here: Callable[[Node], bool]) -> bool:
        """Replace the first match at a node that can be; return whether there was one."""
        fitting = self._fitting(index, root, is_here)
        if not self.unique:
            return any(self._replace(*each) for each in fitting)
        matches = list(fitting)
        return len(matches) == 1 and self._replace(*matches[0])

    def _fitting(
        self, index: NodeIndex, root: AnyNode, is_here: Callable[[Node], bool]
    ) -> Iterator[tuple[Match, Node]]:
        """Yield the matches at a node, each with what takes its place."""
        for match in self._matches(index, root):
            node = self.rewrite(match) if all(map(is_here, match.nodes)) else None
            if node is not None:
                yield match, node

    def _matches(self, index: NodeIndex, root: AnyNode) -> Iterator[Match]:
        """Yield the ways in which the pattern begins at a node."""
        partial: list[tuple[tuple[AnyNode, ...], Bindings]] = [((), {})]
        for each in self.pattern:
            partial = [
                ((*nodes, node), bound)
                for nodes, bindings in partial
                for node in (each.candidates(index, bindings) if nodes else [root])
                if not any(node is other for other in nodes)
                for bound in each.bind(node, bindings)
            ]
        for nodes, bindings in partial:
            yield Match(tuple(node for node in nodes if isinstance(node, Node)), index, bindings)

    def _replace(self, match: Match, node: Node) -> bool:
        """Put the new node into the place of the old ones, if nothing forbids it."""
        index, pairs = match.index, zip(match.nodes, self.pattern, strict=True)
        replaced = [old for old, each in pairs if not each.kept]
        slots = [index.slot(old) for old in replaced]
        slot = min(slots) if self.early else max(slots)
        if not _is_sound(index, replaced, node, slot):
            return False
        index.replace(replaced, node, slot)
        return True


def _is_sound(index: NodeIndex, replaced: Sequence[Node], node: Node, slot: int) -> bool:
    """Return whether the rest computes the same with ``node`` in a slot instead of others."""
    ids = {id(old) for old in replaced}
    results = {id(value) for value in node.outputs}
    for value in (value for old in replaced for value in old.outputs):
        readers = [reader for reader in index.readers(value) if id(reader) not in ids]
        if id(value) in results:
            if any(index.slot(reader) < slot for reader in readers):
                return False
        elif readers or index.is_output(value) or any(value is used for used in node.inputs):
            return False
    producers = [index.producer(value) for value in node.inputs]
    return all(
        producer is None or id(producer) in ids or index.slot(producer) < slot
        for producer in producers
    )
