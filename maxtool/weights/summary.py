"""Summary of a checkpoint: a tree with repeated layers collapsed, and totals.

Computed from headers alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from maxtool.weights.checkpoint import Checkpoint
from maxtool.weights.jsonfile import uncollected
from maxtool.weights.names import MAX_DIGITS, selected
from maxtool.weights.tensor_info import TensorInfo

# Deeper names keep their last segments together: a file must not decide how deep we recurse.
MAX_DEPTH = 100
# Lines of the tree, those that are collapsed later included; names that come after stay whole.
MAX_BRANCHES = 300_000

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Total:
    """Tensors counted together: how many, their elements, and the bytes of their payloads."""

    tensors: int = 0
    parameters: int = 0
    nbytes: int = 0

    def __add__(self, other: Total) -> Total:
        parameters, nbytes = self.parameters + other.parameters, self.nbytes + other.nbytes
        return Total(self.tensors + other.tensors, parameters, nbytes)

    @classmethod
    def of(cls, tensors: Iterable[TensorInfo]) -> Total:
        """Count tensors."""
        count = parameters = nbytes = 0
        for tensor in tensors:
            count, parameters, nbytes = count + 1, parameters + tensor.size, nbytes + tensor.nbytes
        return cls(count, parameters, nbytes)


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One line of the tree: a tensor, or everything below a part of a name.

    Attributes:
        label: The part of the name, several segments where nothing branches; numbers of layers
            alike are one range, such as ``layers.{0..21}``.
        total: All tensors at and below it, in all the layers of ranges in and above it.
        types: Names of the types below it with their bytes, most bytes first.
        shape: The shape, if it is a tensor.
        repeats: How many numbers the range in ``label`` stands for; 1 without one.
        children: Lines below it, in natural order.
    """

    label: str
    total: Total
    types: tuple[tuple[str, int], ...]
    shape: Shape | None = None
    repeats: int = 1
    children: tuple[TreeNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a checkpoint, or of the part that a pattern selects.

    Attributes:
        total: Everything selected.
        by_type: The same for each type's name, most bytes first.
        tensors: What was selected, in natural order of names.
        tree: The top of the tree of their names.
    """

    total: Total
    by_type: Mapping[str, Total]
    tensors: tuple[TensorInfo, ...]
    tree: tuple[TreeNode, ...]


def summarize(checkpoint: Checkpoint, *, pattern: str | None = None) -> Summary:
    """Describe a checkpoint's tensors, those whose whole names match a shell pattern."""
    tensors = tuple(checkpoint.tensors[name] for name in selected(checkpoint.tensors, pattern))
    with uncollected():
        return Summary(Total.of(tensors), _by_type(tensors), tensors, build_tree(tensors))


def _by_type(tensors: Iterable[TensorInfo]) -> dict[str, Total]:
    alike: dict[str, list[TensorInfo]] = {}
    for tensor in tensors:
        alike.setdefault(tensor.type_name, []).append(tensor)
    totals = {name: Total.of(found) for name, found in alike.items()}
    return dict(sorted(totals.items(), key=lambda item: -item[1].nbytes))


def build_tree(tensors: Iterable[TensorInfo]) -> tuple[TreeNode, ...]:
    """The tree of dotted names, layers of one structure collapsed to one line."""
    root = _Branch()
    left = MAX_BRANCHES
    for tensor in tensors:
        left -= root.insert(tensor, MAX_DEPTH if left > 0 else 1)
    return root.nodes()


class _Branch:
    """The names that share a beginning, by their next segment."""

    __slots__ = ("below", "tensor")

    def __init__(self) -> None:
        self.tensor: TensorInfo | None = None
        self.below: dict[str, _Branch] = {}

    def insert(self, tensor: TensorInfo, depth: int) -> int:
        """Add a tensor ``depth`` levels deep at most; returns how many branches that made."""
        branch, made = self, 0
        for segment in tensor.name.split(".", depth - 1):
            known = branch.below.get(segment)
            if known is None:
                known = branch.below[segment] = _Branch()
                made += 1
            branch = known
        branch.tensor = tensor
        return made

    def nodes(self) -> tuple[TreeNode, ...]:
        """The lines below this branch."""
        return tuple(_collapsed([branch.node(label) for label, branch in self.below.items()]))

    def node(self, label: str) -> TreeNode:
        """Return this branch as one line, joined with its only child where it does not branch."""
        branch = self
        while branch.tensor is None and len(branch.below) == 1:
            ((segment, branch),) = branch.below.items()
            label = f"{label}.{segment}"
        if branch.tensor is None:
            children = branch.nodes()
            if len(children) > 1:
                return _above(label, children)
            return replace(children[0], label=f"{label}.{children[0].label}")
        if not branch.below:
            return _leaf(label, branch.tensor)
        return _above(label, (_leaf(ITSELF, branch.tensor), *branch.nodes()))


# A tensor whose name is also the beginning of others' names.
ITSELF = "(itself)"


def _leaf(label: str, tensor: TensorInfo) -> TreeNode:
    total = Total(1, tensor.size, tensor.nbytes)
    return TreeNode(label, total, ((tensor.type_name, total.nbytes),), tensor.shape)


def _above(label: str, children: tuple[TreeNode, ...]) -> TreeNode:
    total = reduce(Total.__add__, (child.total for child in children))
    return TreeNode(label, total, _types(children), children=children)


def _types(nodes: Sequence[TreeNode]) -> tuple[tuple[str, int], ...]:
    totals: dict[str, int] = {}
    for node in nodes:
        for name, nbytes in node.types:
            totals[name] = totals.get(name, 0) + nbytes
    return tuple(sorted(totals.items(), key=lambda item: -item[1]))


def _collapsed(nodes: Sequence[TreeNode]) -> Iterator[TreeNode]:
    """Nodes with numbers for labels and the same structure below them as one node each."""
    alike: dict[object, list[TreeNode]] = {}
    for node in nodes:
        first, _, rest = node.label.partition(".")
        number = first.isascii() and first.isdigit() and len(first) <= MAX_DIGITS
        alike.setdefault((rest, _structure(node)) if number else node.label, []).append(node)
    for group in alike.values():
        yield group[0] if len(group) == 1 else _merged(group)


def _structure(node: TreeNode) -> object:
    """Return the key that nodes must share to be collapsed: everything but their own label."""
    below = tuple((child.label, _structure(child)) for child in node.children)
    return (node.shape, node.types, node.total, below)


def _merged(group: Sequence[TreeNode]) -> TreeNode:
    """Nodes of one structure as one, with a range for a label and totals of them all."""
    numbers = [node.label.partition(".")[0] for node in group]
    _, dot, rest = group[0].label.partition(".")
    scaled = _scaled(group[0], len(group))
    return replace(
        scaled, label=f"{{{ranges(numbers)}}}{dot}{rest}", repeats=len(group) * scaled.repeats
    )


def _scaled(node: TreeNode, count: int) -> TreeNode:
    """A node standing for ``count`` of its kind."""
    own = node.total
    total = Total(own.tensors * count, own.parameters * count, own.nbytes * count)
    types = tuple((name, nbytes * count) for name, nbytes in node.types)
    children = tuple(_scaled(child, count) for child in node.children)
    return replace(node, total=total, types=types, children=children)


def ranges(numbers: Sequence[str]) -> str:
    """Numbers in ascending order, runs shortened: ``0..3,5,7..9``."""
    runs: list[list[str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][-1]) + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("..".join(run) for run in runs)
