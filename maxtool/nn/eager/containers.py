"""Modules that are lists of modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from maxtool.graph import Tensor
from maxtool.nn import containers
from maxtool.nn import module as base
from maxtool.nn.eager.module import Module

M = TypeVar("M", bound="base.Module[..., Any]")


class ModuleList(containers.ModuleList[M], Module[..., Any]):
    """A list whose items are children named by their positions. It cannot be called."""

    def __init__(self, modules: Iterable[M] = ()) -> None:
        super().__init__(modules)

    def tree_items(self) -> Iterator[tuple[str, Any]]:
        """The items by position, then the attributes."""
        for name, value in super().tree_items():
            if name != "_device":
                yield name, value

    __hash__ = containers.ModuleList.__hash__  # type: ignore[assignment]
    __repr__ = Module.__repr__


class Sequential(ModuleList[base.Module[..., Any]]):
    """Modules applied one after the other.

    Args:
        modules: Each takes what the one before it returns. A list of them is given as ``*list``.

    Raises:
        TypeError: If one is no module.
    """

    def __init__(self, *modules: base.Module[..., Any]) -> None:
        super().__init__(modules)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` through each module in turn; ``x`` itself if there are none."""
        for module in self:
            x = module(x)
        return x

    __hash__ = ModuleList.__hash__
