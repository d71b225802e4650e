"""Nested arguments and results as flat lists of tensors, and back."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from maxtool.graph import Tensor

_TENSOR = object()


def flatten(tree: Any) -> tuple[list[Tensor], Hashable]:  # noqa: ANN401 - any nesting
    """The tensors of nested tuples, lists and dicts in order, and the structure without them.

    Structures compare equal when the nesting and everything that is no tensor are equal.

    Raises:
        TypeError: If something that is neither tensor nor container cannot be hashed.
    """
    tensors: list[Tensor] = []
    return tensors, _structure(tree, tensors)


def _structure(tree: Any, tensors: list[Tensor]) -> Hashable:  # noqa: ANN401
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return _TENSOR
    if isinstance(tree, dict):
        return dict, tuple((key, _structure(value, tensors)) for key, value in tree.items())
    if isinstance(tree, tuple | list):
        return type(tree), tuple(_structure(value, tensors) for value in tree)
    hash(tree)
    return None, tree


def unflatten(structure: Hashable, tensors: Sequence[Tensor]) -> Any:  # noqa: ANN401
    """The nested value that :func:`flatten` took apart, with these tensors in it."""
    return _build(structure, iter(tensors))


def _build(structure: Any, tensors: Iterator[Tensor]) -> Any:  # noqa: ANN401
    if structure is _TENSOR:
        return next(tensors)
    kind, content = structure
    if kind is None:
        return content
    if kind is dict:
        return {key: _build(value, tensors) for key, value in content}
    values = [_build(value, tensors) for value in content]
    return kind(*values) if hasattr(kind, "_fields") else kind(values)
