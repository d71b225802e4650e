"""MatMulNBits of com.microsoft: products with a matrix whose rows are blocks of 2, 4 or 8 bits.

Where one of our encodings holds the same numbers exactly, the matrix stays quantized.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import MICROSOFT, operator
from maxtool.importers.onnx.refusals import require
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.legacy import Q4_0, Q4_1, Q8_0

Floats: TypeAlias = NDArray[np.float32]
BITS = (2, 4, 8)
BLOCK = 32
"""Elements of a block of the encodings that may hold the same numbers."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix ``[rows, columns]`` of whole numbers in blocks, each with a scale and a zero point.

    Attributes:
        packed: uint8 ``[rows, blocks, bytes]``, the first element in the lowest bits.
        scales: float32 ``[rows, blocks]``.
        zeros: float32 ``[rows, blocks]``.
        bits: Of an element.
        columns: Elements of a row; its last block may have more, which mean nothing.
    """

    packed: Tensor
    scales: Floats
    zeros: Floats
    bits: int
    columns: int

    def levels(self) -> NDArray[np.uint8]:
        """The whole numbers, ``[rows, columns]``."""
        flat = self.packed.to_numpy().reshape(len(self.scales), -1)
        return unpacked(flat, self.bits)[:, : self.columns]

    def decoded(self) -> Floats:
        """``(level - zero) * scale``, ``[rows, columns]``."""
        levels = self.levels().astype(np.float32)
        scales, zeros = (self._each(one) for one in (self.scales, self.zeros))
        return (levels - zeros) * scales

    def _each(self, of_blocks: Floats) -> Floats:
        size = self.packed.to_numpy().size * 8 // self.bits // of_blocks.size
        return np.repeat(of_blocks, size, axis=1)[:, : self.columns]

    def encoding(self) -> QuantizationEncoding | None:
        """The encoding that holds exactly these numbers, if one does."""
        half = self.scales.astype(np.float16)
        whole = self.columns % BLOCK == 0 and self._size % BLOCK == 0
        if not (whole and np.isfinite(half).all() and (half == self.scales).all()):
            return None
        middle = (self.zeros == 1 << (self.bits - 1)).all()
        if self.bits == 8:
            return QuantizationEncoding.Q8_0 if middle else None
        if self.bits != 4:
            return None
        low = -self.zeros * self.scales
        exact = (low.astype(np.float16) == low).all()
        return _FOUR_BITS[0] if middle else _FOUR_BITS[1] if exact else None

    @property
    def _size(self) -> int:
        """Elements of a block."""
        volume = int(self.packed.shape.volume())
        return volume * 8 // self.bits // self.scales.size

    def encoded(self, encoding: QuantizationEncoding) -> NDArray[np.uint8]:
        """The rows as blocks of an encoding, uint8 ``[rows, bytes]``."""
        rows = len(self.scales)
        levels = self.levels().reshape(-1, BLOCK)
        each = self._size // BLOCK
        count = self.columns // BLOCK
        scales, zeros = (
            np.repeat(one, each, axis=1)[:, :count].reshape(-1) for one in (self.scales, self.zeros)
        )
        records = np.zeros(len(levels), _LAYOUTS[encoding])
        records["d"] = scales
        if encoding is QuantizationEncoding.Q8_0:
            records["qs"] = (levels.astype(np.int16) - 128).astype(np.int8)
        else:
            records["qs"] = levels[:, : BLOCK // 2] | levels[:, BLOCK // 2 :] << 4
        if encoding is QuantizationEncoding.Q4_1:
            records["m"] = -zeros * scales
        return records.view(np.uint8).reshape(rows, -1)


_FOUR_BITS = (QuantizationEncoding.Q4_0, QuantizationEncoding.Q4_1)
_LAYOUTS = {
    QuantizationEncoding.Q4_0: Q4_0,
    QuantizationEncoding.Q4_1: Q4_1,
    QuantizationEncoding.Q8_0: Q8_0,
}


def unpacked(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Numbers of so many bits in the last dimension of bytes, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


class BlockWeight(Weight):
    """A matrix in blocks as a weight: quantized as it is, or decoded."""

    def __init__(self, name: str, dtype: DType, blocks: Blocks) -> None:
        encoding = blocks.encoding()
        kind = DType.float32 if encoding else dtype
        shape = [len(blocks.scales), blocks.columns]
        super().__init__(name, kind, shape, quantization_encoding=encoding)
        self._blocks = blocks

    @property
    def is_bound(self) -> bool:
        """Return True: the model has the data."""
        return True

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Read the elements, or the bytes of blocks if there is an encoding."""
        if self.quantization_encoding is not None:
            return self._blocks.encoded(self.quantization_encoding)
        return self._blocks.decoded().astype(self.dtype.to_numpy())


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_of_bits(call: OperatorCall) -> Tensor:
    """The product with the transpose of a matrix in blocks."""
    call.only("K N accuracy_level bits block_size", 6)
    require(not call.has(4), "an order of the columns (g_idx) is not supported")
    x, bias = call.x(0), call.maybe(5)
    weight = BlockWeight(call.new_name(f"{call.names[1]}_blocks"), x.dtype, _blocks(call))
    product = ops.linear(x, weight)
    return product if bias is None else product + bias


def _blocks(call: OperatorCall) -> Blocks:
    rows, columns = call.number("N"), call.number("K")
    bits, size = call.number("bits", 4), call.number("block_size")
    require(bits in BITS, f"{bits} bits are not supported; {', '.join(map(str, BITS))} are")
    require(min(rows, columns) > 0 and size % 8 == 0 and size > 0, "its sizes are not such")
    count = -(-columns // size)
    packed, scales = call.x(1), call.known(2)
    call.decide(1)
    fits = packed.dtype is DType.uint8 and packed.shape.volume() == rows * count * size * bits // 8
    require(fits and scales.size == rows * count, f"{packed.type} is not of {count} blocks a row")
    wide = scales.astype(np.float32).reshape(rows, count)
    return Blocks(packed, wide, _zeros(call, rows, count, bits), bits, columns)


def _zeros(call: OperatorCall, rows: int, count: int, bits: int) -> Floats:
    """The zero points: the middle if there are none, and packed in rows of whole bytes."""
    if not call.has(3):
        return np.full((rows, count), 1 << (bits - 1), np.float32)
    zeros = call.known(3)
    if zeros.dtype == np.uint8:
        require(zeros.size == rows * -(-count * bits // 8), "its zero points do not fit")
        zeros = unpacked(zeros.reshape(rows, -1), bits)[:, :count]
    require(zeros.size == rows * count, "its zero points do not fit")
    return zeros.astype(np.float32).reshape(rows, count)
