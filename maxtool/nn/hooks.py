"""Functions called after every module call: to look at values, or to replace them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Hook: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], Any]

_HOOKS: list[Hook] = []


def add_layer_hook(fn: Hook) -> None:
    """Call ``fn(layer, args, kwargs, outputs)`` after each module call, children before parents.

    What it returns replaces the outputs, unless it is None. Hooks run in the order they were added,
    each seeing what the one before it returned.
    """
    _HOOKS.append(fn)


def clear_hooks() -> None:
    """Remove all hooks."""
    _HOOKS.clear()


def has_hooks() -> bool:
    """Return whether there are any."""
    return bool(_HOOKS)


def run_hooks(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:  # noqa: ANN401
    """The outputs after every hook has seen them."""
    for hook in _HOOKS:
        replaced = hook(layer, args, kwargs, outputs)
        outputs = outputs if replaced is None else replaced
    return outputs
