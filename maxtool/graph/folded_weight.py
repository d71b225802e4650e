"""Weights that follow from others, and are computed when an artifact is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.errors import ModelMismatch
from maxtool.graph.dim import Shape, ShapeLike
from maxtool.graph.type import TensorType
from maxtool.graph.weight import DerivedWeight, Family, Weight

ENDING = ".folded"


class FoldedWeight(DerivedWeight):
    """A float32 weight that a function gives of others: these are the parameters of the module.

    Args:
        shape: Its sizes.
        sources: The weights that it follows from. It is named for the first of them, which stands
            first in no other folded weight.
        fold: Takes an array of float64 for each source. A ``ValueError`` says that no such weight
            follows from what they hold.
    """

    def __init__(
        self, shape: ShapeLike, sources: Sequence[Weight], fold: Callable[..., Any]
    ) -> None:
        self.graph, self._data = None, None
        self.sources, self._fold = tuple(sources), fold
        self._sizes = Shape(shape)
        self.quantization_encoding = self.align = self.sharding_strategy = None
        self._compute, self._elsewhere = self.to_numpy, {}
        self.sources[0].folded = self

    @property
    def type(self) -> TensorType:  # type: ignore[override]  # it is where its sources are
        """Element type, shape and device."""
        return TensorType(DType.float32, self._sizes, self.sources[0].device)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the first source, with an ending."""
        return f"{self.sources[0].name}{ENDING}"

    @property
    def local_name(self) -> str:  # type: ignore[override]
        """The first source's name in its layer, with an ending."""
        return f"{self.sources[0].local_name}{ENDING}"

    @property
    def family(self) -> Family:  # type: ignore[override]
        """Gives the weights that were named together with the first source."""
        return self.sources[0].family

    def relative(self, name: str, family: Mapping[str, Weight]) -> Weight | None:
        """The weight that is folded of the relatives of its sources."""
        first = self.sources[0].relative(name.removesuffix(ENDING), family)
        return None if first is None else first.folded

    @property
    def is_bound(self) -> bool:
        """Return whether all sources have data."""
        return all(source.is_bound for source in self.sources)

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The data, computed anew of that of the sources."""
        held = {source.name: source.to_numpy() for source in self.sources}
        return self.computed(held.__getitem__)

    def computed(self, read: Callable[[str], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """The data, computed of what ``read`` gives for the name of each source.

        Raises:
            ModelMismatch: If no such weight follows from what the sources hold.
        """
        given = [read(source.name).astype(np.float64) for source in self.sources]
        try:
            folded = self._fold(*given)
        except ValueError as error:
            raise ModelMismatch(str(error), tensor=self.sources[0].name) from None
        return np.ascontiguousarray(folded, np.float32)
