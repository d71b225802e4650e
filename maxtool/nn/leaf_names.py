"""Names for the tensors of nested arguments and results."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from maxtool.graph import TensorType
from maxtool.nn.pytree import flatten, is_leaf


def argument_names(names: Sequence[str], types: Sequence[Any]) -> list[str]:
    """A name for each tensor of the arguments of a call, in order.

    A tensor is called as its argument is; in a tuple or a list, or in a dict, it has its number or
    its key behind that (``pair_0``, ``cache_keys``).

    Args:
        names: The names of the arguments; a number for one that has none (``input_0``).
        types: The type of each, or types nested as the argument is.
    """
    roots = (name if name.isidentifier() else f"input_{name}" for name in names)
    structures = (flatten(nested, TensorType)[1] for nested in types)
    pairs = zip(roots, structures, strict=True)
    return ["_".join((root, *path)) for root, nesting in pairs for path in _paths(nesting)]


def result_names(nesting: Hashable) -> list[str]:
    """A name for each tensor of a result, in order.

    A single tensor is ``output``, those of a tuple or list are ``output_0``, ``output_1``, and so
    on; those of a dict or a named tuple have its keys alone.

    Args:
        nesting: How the result is nested, as :func:`maxtool.nn.pytree.flatten` says.
    """
    paths = list(_paths(nesting))
    return ["_".join(path if _is_keyed(nesting) else ("output", *path)) for path in paths]


def _is_keyed(structure: Any) -> bool:  # noqa: ANN401 - any nesting
    if is_leaf(structure):
        return False
    container, _ = structure
    return container is dict or hasattr(container, "_fields")


def _paths(structure: Any) -> Iterator[tuple[str, ...]]:  # noqa: ANN401
    """Yield, for each tensor, the numbers and keys that lead to it."""
    if is_leaf(structure):
        yield ()
        return
    container, content = structure
    if container is None:
        return
    for index, item in enumerate(content):
        key, inner = item if container is dict else (index, item)
        name = container._fields[index] if hasattr(container, "_fields") else str(key)
        yield from ((name, *path) for path in _paths(inner))
