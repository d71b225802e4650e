"""Modules that are lists of modules: what both styles share, and those of the graph style."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, TypeVar

from maxtool.graph import Tensor
from maxtool.nn.base import ModuleBase
from maxtool.nn.module import Module

M = TypeVar("M", bound=ModuleBase)


class Items(ModuleBase[..., Any], list[M]):
    """A list whose items are children named by their positions. It cannot be called.

    Whatever changes the list changes the tree; a slice of it is a plain list.

    Raises:
        TypeError: If something is put in that is not a module: its weights would be in no state.
    """

    def __init__(self, modules: Iterable[M] = ()) -> None:
        list.__init__(self, self._checked(modules))

    def forward(self, *_args: Any, **_kwargs: Any) -> Any:  # noqa: ANN401
        """A list computes nothing."""
        raise NotImplementedError(f"a {type(self).__name__} is not called: its items are")

    def append(self, layer: M) -> None:
        """Add a module at the end."""
        list.extend(self, self._checked([layer]))

    def insert(self, i: SupportsIndex, layer: M) -> None:
        """Insert a module before index ``i``."""
        list.insert(self, i, *self._checked([layer]))

    def extend(self, layer: M | Iterable[M]) -> None:
        """Add the modules of a list at the end; a module that is not a list is added itself."""
        items: Any = layer
        alone = isinstance(layer, ModuleBase) and not isinstance(layer, list)
        list.extend(self, self._checked([items] if alone else items))

    def __iadd__(self, layers: Iterable[M]) -> Self:  # type: ignore[misc, override]  # as a list's
        self.extend(layers)
        return self

    def __setitem__(self, index: Any, layer: Any) -> None:  # noqa: ANN401 - as a list's
        checked = self._checked(layer if isinstance(index, slice) else [layer])
        list.__setitem__(self, index, checked if isinstance(index, slice) else checked[0])

    def __hash__(self) -> int:  # type: ignore[override]  # a list has none; a module is itself
        return id(self)

    def _checked(self, modules: Iterable[M]) -> list[M]:
        checked = list(modules)
        strangers = {
            type(item).__name__: None for item in checked if not isinstance(item, ModuleBase)
        }
        if strangers:
            raise TypeError(f"{type(self).__name__} holds modules, not {', '.join(strangers)}")
        return checked


class Chain(Items[M]):
    """A list of modules that are applied one after the other."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - what the first one takes
        """The first layer of the arguments, each other one of what the one before it returned.

        Without layers, the one argument itself.
        """
        layers: list[Callable[..., Any]] = [*self] or [lambda value: value]
        result = layers[0](*args, **kwargs)
        for layer in layers[1:]:
            result = layer(result)
        return result


class ModuleList(Items[M], Module[..., Any]):
    """A list whose items are children named by their positions. It cannot be called."""


class LayerList(Chain[M], ModuleList[M]):
    """A list whose items are children named by their positions, applied one after the other.

    Args:
        layers: The layers.
    """

    def __init__(self, layers: Iterable[M]) -> None:
        super().__init__(layers)


class Sequential(LayerList[ModuleBase]):
    """Modules applied one after the other.

    Args:
        modules: The modules, or one list of them.
    """

    def __init__(self, *modules: ModuleBase | Iterable[ModuleBase]) -> None:
        items: Iterable[Any] = modules
        if len(modules) == 1 and not isinstance(modules[0], ModuleBase):
            items = modules[0]
        super().__init__(items)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """``x`` through each module in turn, and the hooks after it."""
