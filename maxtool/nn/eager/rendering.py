"""Printing of modules: a tree with each module's arguments, defaults left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from maxtool.graph import Tensor
from maxtool.nn import tree
from maxtool.nn.tree import Node

INDENT = "    "

# What ``__rich_repr__`` gives (rich's protocol): a value, a pair of name and value, or these and
# the default at which it is left out.
Parts: TypeAlias = Iterator[Any]


def described(module: Node, parts: Iterable[Any], *, is_tree: bool) -> str:
    """A module with its parts: each on a line in a tree, or where a part has several."""
    name, shown = type(module).__name__, list(_shown(parts))
    if not shown or not (is_tree or any("\n" in part for part in shown)):
        return f"{name}({', '.join(shown)})"
    lines = [part.replace("\n", f"\n{INDENT}") for part in shown]
    return "\n".join([f"{name}(", *(f"{INDENT}{line}," for line in lines), ")"])


def parts_of(module: Node) -> Parts:
    """The fields of a dataclass, with their defaults; the children of any other module."""
    if not dataclasses.is_dataclass(module):
        yield from tree.children(module)
        return
    for field in dataclasses.fields(module):
        if field.repr:
            yield field.name, getattr(module, field.name), field.default


def _shown(parts: Iterable[Any]) -> Iterator[str]:
    """Each part that is not at its default, as text."""
    for part in parts:
        whole = part if isinstance(part, tuple) else (part,)
        name, value, *default = whole if len(whole) > 1 else (None, *whole)
        if not (default and _is_default(value, *default)):
            yield f"{name}={value!r}" if name else repr(value)


def _is_default(value: object, default: object) -> bool:
    if value is default or isinstance(value, Tensor):
        return value is default
    return type(value) is type(default) and bool(value == default)
