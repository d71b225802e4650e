"""Batches of blocks: read from rows of a matrix into lanes, and their records written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.transpose import transposed
from maxtool.compiler.quantizers.lanes import INFINITY_BITS, MAGNITUDE, Lanes
from maxtool.quantization import QuantizationEncoding


@dataclass(frozen=True, slots=True)
class Batch:
    """Blocks in the lanes of vectors; at the end of an array the last one fills several.

    Attributes:
        lanes: The arithmetic.
        values: The elements, ``[elements per block, lanes]``.
        blocks: The number of each block.
        records: Where all blocks are written, ``[blocks, bytes]``.
        importance: How much the error of each element counts, as ``values``; None where all count
            the same.
        row_power: The mean square of the row that each block is part of, where that is known.
    """

    lanes: Lanes
    values: b.Buffer
    blocks: b.Buffer
    records: b.Buffer
    importance: b.Buffer | None = None
    row_power: b.Expr = None

    def value(self, element: b.Index) -> b.Expr:
        """An element of each block."""
        return self.lanes.get(self.values, element)

    def write_halves(self, offset: int, halves: Sequence[b.Expr]) -> None:
        """Write numbers below 2**16 from a byte of the records on."""
        self._write(offset, halves, 2)

    def write_words(self, offset: int, words: Sequence[b.Expr]) -> None:
        """Write uint32 from a byte of the records on."""
        self._write(offset, words, 4)

    def _write(self, offset: b.Index, fields: Sequence[b.Expr], size: int) -> None:
        kept = self.lanes.table(len(fields), dtype="uint32")
        for number, numbers in enumerate(fields):
            self.lanes.put(kept, numbers, number)
        with T.serial(b.integer(self.lanes.width)) as lane:
            block = b.index(self.blocks[lane])
            for number in range(len(fields)):
                narrow = b.let(T.Cast(f"uint{8 * size}", kept[number, lane]))
                word = T.reinterpret(f"uint8x{size}", narrow)
                b.store(self.records, word, (block, offset + size * number), size)

    def write_packed(
        self, offset: int, quants: b.Buffer, *, bits: int, run: int, shift: int = 0
    ) -> None:
        """Write ``bits`` of each integer of ``[elements, lanes]``, in planes as ``block.pack``.

        The lowest ``shift`` bits are left out before.
        """
        planes, lanes = 8 // bits, self.lanes

        def field(element: b.Index, place: int) -> b.Expr:
            number = lanes.get(quants, element)
            if shift:
                number = number >> lanes.bits(shift)
            return (number & lanes.bits((1 << bits) - 1)) << lanes.bits(place)

        def word(first: b.Index) -> b.Expr:
            fields = [
                field(first + plane * run + byte, 8 * byte + bits * plane)
                for byte in range(4)
                for plane in range(planes)
            ]
            return b.let(reduce(lambda joined, more: joined | more, fields))

        groups = quants.shape[0] // (run * planes)
        with T.serial(groups) as group:
            words = [word(group * (run * planes) + byte) for byte in range(0, run, 4)]
            self._write(group * run + offset, words, 4)


# Bytes of an element, at multiples of which rows of an array may begin.
ALIGNMENT = {"float32": 4, "float16": 2, "bfloat16": 2}

# Emits the code for a batch; returns where a block's bytes must be found in another way.
Quantize = Callable[[Batch], b.Expr]


def block_quantizer(
    encoding: QuantizationEncoding, dtype: str, width: int, quantize: Quantize, *, weighed: bool
) -> b.PrimFunc:
    """A kernel from blocks of ``dtype`` to records.

    Its arguments: the elements ``[blocks, elements]``, the records ``[blocks, bytes]``, and for
    each batch of ``width`` blocks an int32 that becomes 1 where NumPy has to quantize it. If it is
    ``weighed``, then importance ``[columns, elements]``, and for each block the number of its
    column, and the mean square of its row.
    """
    lanes, size = Lanes(width), encoding.elements_per_block
    with b.kernel("quantize") as kernel:
        count, batches = kernel.dim("blocks"), kernel.dim("batches")
        source = kernel.argument("source", (count, size), b.STORAGE[dtype], align=ALIGNMENT[dtype])
        records = kernel.argument("records", (count, encoding.block_size), "uint8", align=1)
        left = kernel.argument("left", (batches,), "int32", align=4)
        if weighed:
            columns = kernel.dim("columns")
            importance = kernel.argument("importance", (columns, size), "float32", align=4)
            which = kernel.argument("which", (count,), "int64", align=8)
            power = kernel.argument("power", (count,), "float32", align=4)

        def weights(blocks: b.Buffer) -> tuple[b.Buffer, b.Expr]:
            """The importance of the elements of blocks, and their rows' mean squares."""
            chosen, powers = b.scratch((width,), "int64"), lanes.table(1)
            for lane in range(width):
                b.store(chosen, which[blocks[lane]], (lane,))
                b.store(powers, power[blocks[lane]], (0, lane))
            table = lanes.table(size)
            _read(importance, "float32", chosen, lanes, table)
            return table, b.let(lanes.get(powers, 0))

        def work(number: b.Expr) -> None:
            blocks = b.scratch((width,), "int64")
            for lane in range(width):
                block = b.least(number * width + lane, count - 1)
                b.store(blocks, block, (lane,))
            values = lanes.table(size)
            magnitude = _read(source, dtype, blocks, lanes, values)
            given = weights(blocks) if weighed else ()
            odd = quantize(Batch(lanes, values, blocks, records, *given))
            b.store(left, _any(lanes, odd, magnitude), (number,))

        b.each(batches, work, threads=False)
    return kernel.function


def _read(source: b.Buffer, dtype: str, blocks: b.Buffer, lanes: Lanes, values: b.Buffer) -> b.Expr:
    """Turn blocks into lanes; returns the largest magnitude in each lane, as bits."""
    width = lanes.width
    most = lanes.variable(lanes.bits(0))
    with T.serial(source.shape[1] // width) as tile:
        rows = [
            b.let(b.load_weight(source, (blocks[lane], tile * width), width, dtype))
            for lane in range(width)
        ]
        for number, column in enumerate(transposed(rows)):
            lanes.put(values, column, tile * width + number)
            size = b.let(lanes.as_bits(column) & lanes.bits(MAGNITUDE))
            most.set(size, size > most.value)
    return b.let(most.value)


def _any(lanes: Lanes, odd: b.Expr, magnitude: b.Expr) -> b.Expr:
    """Return 1 if a lane is odd, or its magnitude is not finite."""
    one, zero = lanes.bits(1), lanes.bits(0)
    flags = T.Select(magnitude >= lanes.bits(INFINITY_BITS), one, zero)
    flags = b.let(flags | T.Select(odd, one, zero))
    return T.Cast("int32", b.fold(flags, lanes.width, lambda left, right: left | right))
