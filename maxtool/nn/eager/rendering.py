"""How modules print: a tree with what each was made of, defaults left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from maxtool.graph import Tensor

if TYPE_CHECKING:
    from maxtool.nn.eager.module import Module

INDENT = "    "


def described(module: Module[..., Any]) -> str:
    """The module on one line where it says its arguments, else its parts on a line each."""
    name = type(module).__name__
    arguments = getattr(module, "_arguments", None)
    if arguments is not None:
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments().items())})"
    parts = [f"{key}={_indented(value)}" for key, value in _parts(module)]
    if not parts:
        return f"{name}()"
    return "\n".join([f"{name}(", *(f"{INDENT}{part}," for part in parts), ")"])


def _parts(module: Module[..., Any]) -> Iterator[tuple[str, object]]:
    """The fields of a dataclass that are not at their defaults; the children of any other."""
    if not dataclasses.is_dataclass(module):
        yield from module.children
        return
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        if field.repr and not _is_default(field, value):
            yield field.name, value


def _is_default(field: dataclasses.Field[Any], value: object) -> bool:
    if isinstance(value, Tensor):
        return value is field.default
    return type(value) is type(field.default) and bool(value == field.default)


def _indented(value: object) -> str:
    return repr(value).replace("\n", f"\n{INDENT}")
