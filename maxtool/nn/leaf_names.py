"""Names for the tensors of nested arguments and results."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from maxtool.nn.pytree import is_leaf


def leaf_names(root: str, structure: Hashable) -> list[str]:
    """A name for each tensor of a nested value, in order.

    A single tensor is called as the whole is. In a tuple or list it gets its number behind that
    (``output_0``); in a named tuple or a dict its key alone, behind what the container is called
    where that is nested itself (``cache_keys``).

    Args:
        root: The name of the whole.
        structure: How the value is nested, as :func:`maxtool.nn.pytree.flatten` says.
    """
    return ["_".join(path) or root for path in _paths(root, structure)]


def _paths(root: str, structure: Any) -> Iterator[tuple[str, ...]]:  # noqa: ANN401 - any nesting
    if is_leaf(structure):
        yield ()
        return
    kind, content = structure
    if kind is None:
        return
    keyed = kind is dict or hasattr(kind, "_fields")
    for index, item in enumerate(content):
        key, inner = item if kind is dict else (index, item)
        name = kind._fields[index] if hasattr(kind, "_fields") else key
        for path in _paths("", inner):
            yield (*(() if keyed or not root else (root,)), str(name), *path)
