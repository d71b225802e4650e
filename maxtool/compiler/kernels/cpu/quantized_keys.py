"""A block of keys in eight bits, and its scores with queries that are rounded likewise.

Products are of integers while elements share a scale, as in llama.cpp: queries are rounded for
blocks of as many elements as those of the keys (:mod:`.quantized_activations`). Four elements of a
key are an int32 in the cache, so that a vector is of neighbouring keys, and the sums of one key are
a lane, as columns are of quantized weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.cached_rows import CachedRows
from maxtool.compiler.kernels.cpu.integer_dot import InstructionSet, IntegerDot
from maxtool.compiler.kernels.cpu.key_block import KEYS, ROWS, TILE_ROWS
from maxtool.compiler.kernels.cpu.quantized_activations import Activations, QuantizedRows
from maxtool.compiler.quantized_layout import GROUP, layout_of
from maxtool.quantization import QuantizationEncoding

LAYOUT = layout_of(QuantizationEncoding.Q8_0)
BLOCK = LAYOUT.span
# Turns the sign bit of each of four bytes: what is added is then the zero of the layout.
SIGNS = -0x7F7F7F80


@dataclass(frozen=True, slots=True)
class QuantizedKeys:
    """Keys as integers.

    Attributes:
        cached: Where they come from.
        dot: How they are multiplied.
        vectors: Vectors in a row of a register tile.
        words: [head_dim / 4, KEYS] int32: the current block, as ``dot`` wants it.
        scales: [head_dim / 32, KEYS] of it.
        rounded: The queries, each a tile.
    """

    cached: CachedRows
    dot: IntegerDot
    vectors: int
    words: b.Buffer
    scales: b.Buffer
    rounded: QuantizedRows

    @classmethod
    def allocated(
        cls, cached: CachedRows, tile: RegisterTile, machine: InstructionSet, head_dim: int
    ) -> QuantizedKeys:
        """Take the memory."""
        return cls(
            cached,
            machine.unpacking(LAYOUT),
            2 if tile.registers >= 32 else 1,
            b.scratch((head_dim // GROUP, KEYS), "int32"),
            b.scratch((head_dim // BLOCK, KEYS)),
            QuantizedRows(machine, [LAYOUT], (ROWS, head_dim), 1, b.scratch),
        )

    @property
    def _blocks(self) -> b.Expr:
        """Blocks of a head."""
        return b.integer(self.scales.shape[0])

    @property
    def _queries(self) -> Activations:
        return self.rounded.of(LAYOUT)

    def prepare(self, queries: b.Buffer, rows: b.Expr) -> None:
        """Round the queries."""
        with T.serial(rows) as r:
            self.rounded.quantize(queries, r, [(r,)])

    def copy(self, source: tuple[b.Expr, b.Expr], base: b.Expr, count: b.Expr) -> None:
        """Bring a block together."""

        def whole() -> None:
            with T.serial(self._blocks) as block:
                for at in range(0, KEYS, self.dot.lanes):
                    self._copy_scales(source, base, block, at, self.dot.lanes)
                with T.serial(b.integer(BLOCK // GROUP)) as i:
                    group = b.index(block * (BLOCK // GROUP) + i)
                    for at in range(0, KEYS, self.dot.lanes):
                        self._copy_words(source, base, group, at, self.dot.lanes)

        def part() -> None:
            with T.serial(self._blocks) as block:
                with T.serial(b.integer(KEYS)) as i:
                    b.store(self.scales, T.float32(0), (block, i))
                with T.serial(count) as i:
                    self._copy_scales(source, base, block, i, 1)
            with T.serial(b.integer(self.words.shape[0])) as group:
                with T.serial(b.integer(KEYS)) as i:
                    b.store(self.words, b.int32(0), (group, i))
                with T.serial(count) as i:
                    self._copy_words(source, base, group, i, 1)

        b.either(base + KEYS <= self.cached.rows.shape[3], whole, part)

    def _copy_scales(
        self,
        source: tuple[b.Expr, b.Expr],
        base: b.Expr,
        block: b.Expr,
        offset: b.Index,
        width: int,
    ) -> None:
        place = *source, block, base + offset
        value = b.load_weight(self.cached.scales, place, width, "float16")
        b.store(self.scales, value, (block, offset), width)

    def _copy_words(
        self,
        source: tuple[b.Expr, b.Expr],
        base: b.Expr,
        group: b.Expr,
        offset: b.Index,
        width: int,
    ) -> None:
        words = b.load(self.cached.rows, (*source, group, base + offset), width)
        if not self.dot.signed:
            words = words ^ b.splat(b.int32(SIGNS), width)
        b.store(self.words, words, (group, offset), width)

    def score(
        self,
        queries: b.Buffer,  # noqa: ARG002
        row: b.Expr,
        scores: b.Buffer,
        following: b.Indices,
    ) -> None:
        """Multiply a register tile of rows with the block."""
        *source, next_key = following
        lanes, columns = self.dot.lanes, self.vectors * self.dot.lanes
        with T.serial(b.integer(KEYS // columns)) as part:
            start = b.index(part * columns)
            sums = b.Registers(TILE_ROWS, columns, lanes)
            sums.clear()
            with T.serial(self._blocks) as block:
                for group in range(BLOCK // GROUP):
                    place = *source, block * (BLOCK // GROUP) + group, next_key + start
                    self.cached.prefetch(place, columns)
                self._add_block(sums, row, block, start)
            for r, offset, width in sums.places:
                b.store(scores, sums.get(r, offset, width), (row + r, start + offset), width)

    def _add_block(self, sums: b.Registers, row: b.Expr, block: b.Expr, start: b.Expr) -> None:
        """Add the products of elements that share a scale."""
        integers = b.scratch((TILE_ROWS, sums.buffer.shape[1]), "int32")
        for r, offset, width in sums.places:
            bits = self._queries.first_bits(row + r, block, 0)
            b.store(integers, self.dot.start(bits), (r, offset), width)
        with T.serial(b.integer(BLOCK // GROUP)) as i:
            self._add_group(
                integers, sums.pieces, row, b.index(block * (BLOCK // GROUP) + i), start
            )
        scales = [b.let(b.load(self.scales, (block, start + at), n)) for at, n in sums.pieces]
        for r in range(TILE_ROWS):
            own = b.let(self._queries.scales[row + r, block, 0])
            for (offset, width), scale in zip(sums.pieces, scales, strict=True):
                total = self.dot.total(b.load(integers, (r, offset), width), 0)
                value = T.Cast(b.vector_type("float32", width), total)
                sums.add(r, offset, width, value * (scale * b.splat(own, width)))

    def _add_group(
        self,
        integers: b.Buffer,
        pieces: list[tuple[int, int]],
        row: b.Expr,
        group: b.Expr,
        start: b.Expr,
    ) -> None:
        """Add the products of four elements."""
        bytes_of = b.vector_type("uint8", GROUP * self.dot.lanes)
        keys = [
            b.let(T.reinterpret(bytes_of, b.load(self.words, (group, start + at), width)))
            for at, width in pieces
        ]
        for r in range(TILE_ROWS):
            query = [b.let(part) for part in self._queries.operand(row + r, group, 0)]
            for (offset, width), key in zip(pieces, keys, strict=True):
                here = b.load(integers, (r, offset), width)
                b.store(integers, self.dot.add(here, key, query), (r, offset), width)
