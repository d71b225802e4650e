"""Operations by name, as the operators and methods of tensors call them.

Operations take and give tensors, so they are defined above them: :mod:`maxtool.graph.ops` installs
its functions here when it is imported, which importing anything of :mod:`maxtool.graph` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_OPERATIONS: dict[str, Callable[..., Any]] = {}


def install(operations: Mapping[str, Callable[..., Any]]) -> None:
    """Let tensors call these operations by their names."""
    _OPERATIONS.update(operations)


def call(name: str, *operands: Any, **options: Any) -> Any:  # noqa: ANN401 - any operation's
    """Call an operation."""
    return _OPERATIONS[name](*operands, **options)
