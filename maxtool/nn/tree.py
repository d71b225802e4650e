"""The one walk over a tree of modules: who its children are, and which tensors it owns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maxtool.graph import Tensor, Weight

if TYPE_CHECKING:
    from maxtool.nn.module import Module


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor of a module tree.

    Attributes:
        name: Its full path, the weight's own name being the last part.
        owner: The module that holds it.
        attribute: The attribute of ``owner`` that it is.
        tensor: The tensor.
    """

    name: str
    owner: Module[..., Any]
    attribute: str
    tensor: Tensor


def children(module: Module[..., Any]) -> Iterator[tuple[str, Module[..., Any]]]:
    """The direct children in the order they were set: attributes, and the items of a list."""
    from maxtool.nn.module import Module

    for name, value in module.tree_items():
        if isinstance(value, Module):
            yield name, value


def modules(root: Module[..., Any], prefix: str = "") -> Iterator[tuple[str, Module[..., Any]]]:
    """``root`` and its descendants, depth first, each once, under the first path that leads to it.

    Paths have no dot at the end; that of ``root`` is ``prefix``.
    """
    seen: set[int] = set()
    pending = [(prefix, root)]
    while pending:
        path, module = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        below = [(join(path, name), child) for name, child in children(module)]
        pending.extend(reversed(below))


def local_leaves(module: Module[..., Any], path: str = "") -> Iterator[Leaf]:
    """The tensors that ``module`` itself owns; shared weights belong to their owner."""
    for name, value in module.tree_items():
        if isinstance(value, Tensor) and name not in module.shared_weight_names:
            own = value.local_name if isinstance(value, Weight) else name
            yield Leaf(join(path, own), module, name, value)


def leaves(root: Module[..., Any], prefix: str = "") -> Iterator[Leaf]:
    """Every tensor of the tree: the module's own first, then those of its children, depth first.

    Raises:
        ValueError: If two tensors have one name.
    """
    found: dict[str, Leaf] = {}
    for path, module in modules(root, prefix):
        for leaf in local_leaves(module, path):
            first = found.setdefault(leaf.name, leaf)
            if first is leaf:
                yield leaf
            elif first.tensor is not leaf.tensor:
                both = f"{first.attribute!r} and {leaf.attribute!r}"
                raise ValueError(f"two tensors are named {leaf.name!r}: attributes {both}")


def join(path: str, name: str) -> str:
    """Two parts of a path with a dot between them, unless one is empty."""
    return f"{path}.{name}" if path and name else path or name
