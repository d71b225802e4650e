"""The hierarchical view of a checkpoint's weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, SupportsIndex

from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, ModelMismatch
from maxtool.quantization.codec import quantize
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.weights.names import is_below, natural_key
from maxtool.weights.weight_data import WeightData


class WeightSource(Protocol):
    """Source of a view's weights, such as a ``Checkpoint``."""

    @property
    def tensors(self) -> Mapping[str, object]:
        """Every tensor by name."""

    def read(self, name: str) -> WeightData:
        """The data of one of them; ``KeyError`` if there is none."""


@dataclass(frozen=True, slots=True)
class AllocatedWeight:
    """Result of :meth:`Weights.allocate`: a weight for a graph, its data known by its name.

    The facts are those of ``WeightData``, and the device that was asked for.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    quantization_encoding: QuantizationEncoding | None = None
    device: object = "cpu"
    data: NDArray[Any] | None = field(default=None, repr=False, compare=False)


class View:
    """A name, whole or the beginning of one, in a checkpoint.

    Attributes and indices lengthen the name; nothing is looked up before it is asked for. Segments
    that are methods of this class, Python keywords or numbers are reached by index::

        weights.model.layers[0].mlp["up_proj"].weight.data()

    Args:
        source: The checkpoint.
        name: The name so far; empty for the root.
    """

    def __init__(self, source: WeightSource, name: str = "") -> None:
        self._source = source
        self._name = name
        self._allocated: dict[str, NDArray[Any]] = {}

    def __getattr__(self, segment: str) -> Self:
        if segment.startswith("__"):  # protocols of copy, pickle and NumPy, not names of weights
            raise AttributeError(segment)
        return self[segment]

    def __getitem__(self, segment: str | SupportsIndex) -> Self:
        text = segment if isinstance(segment, str) else str(segment.__index__())
        return self._at(f"{self._name}.{text}" if self._name else text)

    # Without this, Python would iterate by asking for [0], [1], ... without end.
    __iter__ = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    @property
    def name(self) -> str:
        """The dotted name built so far."""
        return self._name

    def exists(self) -> bool:
        """Return whether a weight has exactly this name."""
        return self._name in self._source.tensors

    def data(self) -> WeightData:
        """The weight's data.

        Raises:
            MissingWeight: If no weight has exactly this name; it is a ``KeyError`` too.
        """
        return self._source.read(self._name)

    def items(self) -> Iterator[tuple[str, Self]]:
        """Every weight at or below this name, by full name, ``layers.2`` before ``layers.10``.

        Whole dotted segments count: ``layers.1`` does not cover ``layers.10``.
        """
        names = (name for name in self._source.tensors if is_below(name, self._name))
        for name in sorted(names, key=natural_key):
            yield name, self._at(name)

    @property
    def allocated_weights(self) -> dict[str, NDArray[Any]]:
        """The data of every weight allocated through this view, its root or its branches."""
        return dict(self._allocated)

    def _at(self, name: str) -> Self:
        """The view of another name, which shares what was allocated."""
        view = object.__new__(type(self))
        vars(view).update(vars(self), _name=name)
        return view

    def _converted(
        self,
        dtype: DType | None,
        shape: Iterable[Any] | None,
        encoding: QuantizationEncoding | None,
    ) -> WeightData:
        """The weight as :meth:`allocate` is asked for it, remembered as allocated."""
        weight = self.data()
        if shape is not None and tuple(shape) != weight.shape:
            raise MisshapenWeight(f"the shape is {list(weight.shape)}", tensor=self._name)
        weight = _converted(weight, dtype, encoding)
        self._allocated[self._name] = weight.data
        return weight


class Weights(View):
    """A view that allocates weights by description, for those who know no graph."""

    def allocate(
        self,
        dtype: DType | None = None,
        shape: Iterable[int] | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        device: object = "cpu",
    ) -> AllocatedWeight:
        """Declare this weight for a graph, converted if need be.

        Args:
            dtype: The type to convert to; the stored one if ``None``.
            shape: What the shape must be; any if ``None``.
            quantization_encoding: The block encoding wanted. Weights in another, or in none, are
                encoded; a quantized weight stays so unless ``dtype`` asks for its elements.
            device: Where the graph wants it; not interpreted here.

        Raises:
            MissingWeight: If no weight has exactly this name.
            MisshapenWeight: If its shape is not ``shape``.
            ModelMismatch: If it cannot be converted, or dtype and encoding contradict each other.
        """
        weight = self._converted(dtype, shape, quantization_encoding)
        encoding = weight.quantization_encoding
        return AllocatedWeight(
            self._name, weight.dtype, weight.shape, encoding, device, weight.data
        )


def _converted(
    weight: WeightData, dtype: DType | None, encoding: QuantizationEncoding | None
) -> WeightData:
    if encoding is None:
        return weight if dtype is None else weight.astype(dtype)
    if dtype is not None and dtype is not DType.float32:
        what = f"{encoding.name} blocks hold float32 elements, not {dtype.name}"
        raise ModelMismatch(what, tensor=weight.name)
    if weight.quantization_encoding is encoding:
        return weight
    values = weight.astype(DType.float32).data
    packed = quantize(values, encoding, tensor=weight.name)
    return WeightData(packed, weight.name, DType.float32, weight.shape, encoding)
