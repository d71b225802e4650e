"""Modules that are lists of modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from maxtool.graph import Tensor
from maxtool.nn.base import ModuleBase
from maxtool.nn.containers import Chain, Items
from maxtool.nn.eager.module import Module

M = TypeVar("M", bound=ModuleBase)


class ModuleList(Items[M], Module[..., Any]):
    """A list whose items are children named by their positions. It cannot be called."""


class Sequential(Chain[ModuleBase], ModuleList[ModuleBase]):
    """Modules applied one after the other.

    Args:
        modules: Each takes what the one before it returns. A list of them is given as ``*list``.

    Raises:
        TypeError: If one is not a module.
    """

    def __init__(self, *modules: ModuleBase[..., Any]) -> None:
        super().__init__(modules)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """``x`` through each module in turn, and the hooks after it."""
