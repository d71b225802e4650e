"""Descriptions of what tensors of a checkpoint mean together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import MalformedFile
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.weights.composite import CompositeTensor, View
from maxtool.weights.tensor_info import TensorInfo

Shape = tuple[int, ...]
# The tensors of one weight, and their data, by the endings of their names.
Parts = Mapping[str, TensorInfo]
Arrays = Mapping[str, NDArray[Any]]
# Puts the elements, or the bytes of blocks, into an array of the weight's stored type and shape.
Decoder = Callable[[Arrays, NDArray[Any]], None]


class Unsupported(ValueError):
    """A quantization that is not read, and what is."""


class Misfit(ValueError):
    """A contradiction between the tensors of one weight."""


@dataclass(frozen=True)
class Meaning:
    """The weight that some tensors make.

    Attributes:
        label: Its type in listings.
        shape: Its shape, as a layer without quantization has it.
        dtype: Type of its elements; float32 where they stay in blocks.
        decode: Makes it; raises ``Misfit``.
        encoding: Blocks that hold the same numbers, if it is given as such.
    """

    label: str
    shape: Shape
    dtype: DType
    decode: Decoder
    encoding: QuantizationEncoding | None = None


@dataclass(frozen=True)
class Layout:
    """Names of the tensors that make one weight: what stands before the endings is the same.

    Attributes:
        anchor: Ending of the tensor whose presence says that there is such a weight.
        weight: Ending of the weight's name.
        numbers: Ending of the tensor with the quantized numbers.
        required: Endings of the tensors that it needs, beside these two.
        optional: Endings of tensors that may be there.
        early: Endings of small tensors that are read to know the weight's shape.
        meaning: What they mean, from their types and shapes and the data of ``early``; raises
            ``Misfit``.
    """

    anchor: str
    weight: str
    numbers: str
    meaning: Callable[[Parts, Arrays], Meaning]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    early: tuple[str, ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """Endings of all tensors that must be there."""
        return tuple(dict.fromkeys((self.anchor, self.numbers, *self.required)))


@dataclass(frozen=True, slots=True)
class QuantizedTensor(CompositeTensor):
    """A quantized weight.

    Attributes:
        by_ending: The tensors that make it.
        label: Its type in listings.
        decode: Makes it of their data.
    """

    by_ending: Parts = field(kw_only=True, compare=False, repr=False)
    label: str = field(kw_only=True)
    decode: Decoder = field(kw_only=True, compare=False, repr=False)

    @property
    def parts(self) -> tuple[TensorInfo, ...]:
        """The tensors that make it."""
        return tuple(self.by_ending.values())

    @property
    def type_name(self) -> str:
        """The label."""
        return self.label

    def read(self, view: View) -> NDArray[Any]:
        """The elements, or the bytes of blocks.

        Raises:
            MalformedFile: If the parts contradict each other.
        """
        out = np.empty(self.stored_shape, self.stored_dtype)
        try:
            self.decode({ending: view(info) for ending, info in self.by_ending.items()}, out)
        except Misfit as error:
            raise MalformedFile(str(error), file=self.file, tensor=self.name) from None
        return out


def quantized(name: str, parts: Parts, numbers: TensorInfo, meaning: Meaning) -> QuantizedTensor:
    """The tensor that stands for its parts."""
    return QuantizedTensor(
        name,
        meaning.dtype,
        meaning.shape,
        meaning.encoding,
        file=numbers.file,
        offset=numbers.offset,
        by_ending=parts,
        label=meaning.label,
        decode=meaning.decode,
    )


# --- what meanings check -------------------------------------------------------------------------


def expect(info: TensorInfo, dtypes: frozenset[DType], shape: Shape | None = None) -> None:
    """Check the type of a tensor, and its shape, if there is one that it must have."""
    if info.encoding is not None or info.dtype not in dtypes:
        wanted = " or ".join(sorted(dtype.value for dtype in dtypes))
        raise Misfit(f"{info.name} is {info.type_name}, not {wanted}")
    if shape is not None and info.shape != shape:
        raise Misfit(f"{info.name} has the shape {list(info.shape)}, not {list(shape)}")


def matrix(info: TensorInfo) -> tuple[int, int]:
    """The two dimensions of a tensor, neither of them 0."""
    if len(info.shape) != 2 or 0 in info.shape:
        raise Misfit(f"{info.name} has the shape {list(info.shape)}, not that of a matrix")
    return info.shape[0], info.shape[1]
