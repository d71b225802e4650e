"""One tensor's data, and its conversion to other element types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from maxtool.casting import cast
from maxtool.dtype import DType
from maxtool.errors import ModelMismatch
from maxtool.quantization.codec import dequantize
from maxtool.quantization.encoding import QuantizationEncoding


@dataclass(frozen=True, slots=True, eq=False)
class WeightData:
    """A tensor's data with what is needed to understand it.

    Attributes:
        data: The elements, of ``shape`` and of ``dtype``'s NumPy type; or, when quantized, bytes
            (uint8) ``[*shape[:-1], bytes of a row]``. Read from a file it is a read-only view.
        name: The tensor's name.
        dtype: Type of the elements; float32 when quantized.
        shape: Logical shape, slowest dimension first.
        quantization_encoding: How blocks of elements are packed, if they are.
    """

    data: NDArray[Any]
    name: str
    dtype: DType
    shape: tuple[int, ...]
    quantization_encoding: QuantizationEncoding | None = None

    @classmethod
    def from_numpy(cls, array: NDArray[Any], name: str) -> WeightData:
        """Wrap an array.

        Raises:
            ValueError: If its NumPy dtype has no ``DType``.
        """
        return cls(array, name, DType.from_numpy(array.dtype), array.shape)

    def astype(self, dtype: DType) -> WeightData:
        """The same weight with elements of another type.

        Floats round to nearest even, as NumPy and ml_dtypes do. Quantized data is decoded to
        float32 first, even when ``dtype`` is float32 already.

        Raises:
            ModelMismatch: If a finite value would become infinite or NaN, an integer would change,
                or floats would become integers.
        """
        if self.quantization_encoding is not None:
            values = dequantize(self.data, self.quantization_encoding, tensor=self.name)
            return WeightData(values, self.name, DType.float32, self.shape).astype(dtype)
        if dtype is self.dtype:
            return self
        if self.dtype.is_float() and not dtype.is_float():
            raise unfit(self.name, self.dtype, dtype, "would be cut to whole numbers")
        converted, changed = cast(self.data, dtype)
        if changed:
            raise lossy(self.name, self.dtype, dtype, changed, self.data.size)
        return WeightData(converted, self.name, dtype, self.shape)


def lossy(tensor: str, source: DType, wanted: DType, count: int, size: int) -> ModelMismatch:
    """The error for ``count`` of ``size`` elements that another type does not hold."""
    return unfit(tensor, source, wanted, f"{count} of {size} values do not fit")


def unfit(tensor: str, source: DType, wanted: DType, why: str) -> ModelMismatch:
    """The error for elements that cannot be cast."""
    what = f"{source.name} cannot become {wanted.name}: {why}"
    return ModelMismatch(what, tensor=tensor, hint="choose a wider type")
