"""Nested arguments and results as flat lists of tensors, and back."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from maxtool.graph import Tensor

_LEAF = object()


def flatten(tree: Any, leaf: type | tuple[type, ...] = Tensor) -> tuple[list[Any], Hashable]:  # noqa: ANN401
    """The tensors of nested tuples, lists and dicts in order, and the structure without them.

    Structures compare equal when the nesting and everything that is not a tensor are equal, types
    included: 1, 1.0 and True are three structures.

    Args:
        tree: The nested value.
        leaf: What is taken out, if not tensors.

    Raises:
        TypeError: If something that is neither leaf nor container cannot be hashed.
    """
    leaves: list[Any] = []
    return leaves, _structure(tree, leaves, leaf)


def _structure(tree: Any, leaves: list[Any], leaf: type | tuple[type, ...]) -> Hashable:  # noqa: ANN401
    if isinstance(tree, leaf):
        leaves.append(tree)
        return _LEAF
    if isinstance(tree, dict):
        return dict, tuple((key, _structure(value, leaves, leaf)) for key, value in tree.items())
    if isinstance(tree, tuple | list):
        return type(tree), tuple(_structure(value, leaves, leaf) for value in tree)
    hash(tree)
    return None, (type(tree), tree)


def is_leaf(structure: Hashable) -> bool:
    """Return whether a structure, or a part of one, is that of a single leaf."""
    return structure is _LEAF


def unflatten(structure: Hashable, leaves: Iterable[Any]) -> Any:  # noqa: ANN401
    """The nested value that :func:`flatten` took apart, with these leaves in it."""
    return _build(structure, iter(leaves))


def _build(structure: Any, leaves: Iterator[Any]) -> Any:  # noqa: ANN401
    if structure is _LEAF:
        return next(leaves)
    node_type, content = structure
    if node_type is None:
        return content[1]
    if node_type is dict:
        return {key: _build(value, leaves) for key, value in content}
    values = [_build(value, leaves) for value in content]
    return node_type(*values) if hasattr(node_type, "_fields") else node_type(values)
