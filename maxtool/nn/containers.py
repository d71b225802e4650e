"""Modules that are lists of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from maxtool.graph import Tensor
from maxtool.nn.module import Module

M = TypeVar("M", bound="Module[..., Any]")


class ModuleList(Module[..., Any], list[M]):
    """A list whose items are children named by their positions. It cannot be called.

    Raises:
        TypeError: If an item is no module: its weights would be in no state.
    """

    def __init__(self, modules: Iterable[M] = ()) -> None:
        list.__init__(self, modules)
        strangers = {type(item).__name__: None for item in self if not isinstance(item, Module)}
        if strangers:
            raise TypeError(f"{type(self).__name__} holds modules, not {', '.join(strangers)}")

    def tree_items(self) -> Iterator[tuple[str, Any]]:
        """The items by position, then the attributes."""
        yield from ((str(index), module) for index, module in enumerate(self))
        yield from super().tree_items()

    def __hash__(self) -> int:  # type: ignore[override]  # a list has none; a module is itself
        return id(self)


class Sequential(ModuleList[Module[..., Any]]):
    """Modules applied one after the other.

    Args:
        modules: The modules, or one list of them.
    """

    def __init__(self, *modules: Module[..., Any] | Iterable[Module[..., Any]]) -> None:
        given: Iterable[Any] = modules
        if len(modules) == 1 and not isinstance(modules[0], Module):
            given = modules[0]
        super().__init__(given)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` through each module in turn; ``x`` itself if there are none."""
        for module in self:
            x = module(x)
        return x
