"""A block of keys and the scores of queries with it: in float32, whatever the type of the keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.cached_rows import CachedRows

KEYS = 64  # keys in a block: a multiple of every vector length
ROWS = 16  # rows in a task
TILE_ROWS = 4  # rows of a register tile


class KeyBlock(Protocol):
    """Keys of a block in memory of the task's own."""

    def prepare(self, queries: b.Buffer, rows: b.Expr) -> None:
        """Take in the queries ``[ROWS, head_dim]``, scaled, of which there are so many."""

    def copy(self, source: tuple[b.Expr, b.Expr], base: b.Expr, count: b.Expr) -> None:
        """Bring a block together; beyond the context there is nothing to read, so zeros.

        ``source`` are the row of the cache and the head, ``base`` is the first key of ``count``.
        """

    def score(self, queries: b.Buffer, row: b.Expr, scores: b.Buffer, following: b.Indices) -> None:
        """Write scores ``[ROWS, KEYS]`` of a register tile of rows with every key of the block.

        Fetch the next block into the cache meanwhile: ``following`` are the row of the cache, the
        head and the first key. Fetched all at once it would have to be waited for.
        """


def vectors(tile: RegisterTile) -> int:
    """Vectors in a row of a register tile."""
    return 4 if tile.registers >= 32 else 2


@dataclass(frozen=True, slots=True)
class FloatKeys:
    """Keys as float32.

    Attributes:
        cached: Where they come from.
        tile: The registers.
        buffer: [head_dim, KEYS] of the current block.
    """

    cached: CachedRows
    tile: RegisterTile
    buffer: b.Buffer

    @classmethod
    def allocated(cls, cached: CachedRows, tile: RegisterTile, head_dim: int) -> FloatKeys:
        """Take the memory."""
        return cls(cached, tile, b.scratch((head_dim, KEYS)))

    @property
    def _head_dim(self) -> b.Expr:
        return b.integer(self.buffer.shape[0])

    def prepare(self, queries: b.Buffer, rows: b.Expr) -> None:
        """Do nothing: queries are multiplied as they are."""

    def copy(self, source: tuple[b.Expr, b.Expr], base: b.Expr, count: b.Expr) -> None:
        """Bring a block together."""

        def whole() -> None:
            with T.serial(self._head_dim) as d:
                for offset, width in b.widths(KEYS, self.tile.width):
                    self._copy_one(source, base, d, offset, width)

        def part() -> None:
            with T.serial(self._head_dim) as d:
                for offset, width in b.widths(KEYS, self.tile.width):
                    b.store(self.buffer, b.splat(0.0, width), (d, offset), width)
                with T.serial(count) as i:
                    self._copy_one(source, base, d, i, 1)

        b.either(base + KEYS <= self.cached.rows.shape[3], whole, part)

    def _copy_one(
        self,
        source: tuple[b.Expr, b.Expr],
        base: b.Expr,
        d: b.Expr,
        offset: b.Index,
        width: int,
    ) -> None:
        """Copy one dimension of ``width`` neighbouring keys."""
        value = self.cached.vector((*source, d, base + offset), width)
        b.store(self.buffer, value, (d, offset), width)

    def score(self, queries: b.Buffer, row: b.Expr, scores: b.Buffer, following: b.Indices) -> None:
        """Multiply a register tile of rows with the block."""
        *source, next_key = following
        columns = vectors(self.tile) * self.tile.width
        with T.serial(b.integer(KEYS // columns)) as part:
            start = b.index(part * columns)
            sums = b.Registers(TILE_ROWS, columns, self.tile.width)
            sums.clear()
            with T.serial(self._head_dim) as d:
                self.cached.prefetch((*source, d, next_key + start), columns)
                keys = [b.let(b.load(self.buffer, (d, start + at), n)) for at, n in sums.pieces]
                for r in range(TILE_ROWS):
                    query = b.let(b.splat(queries[row + r, d], self.tile.width))
                    for (offset, width), key in zip(sums.pieces, keys, strict=True):
                        sums.add(r, offset, width, query * key)
            for r, offset, width in sums.places:
                b.store(scores, sums.get(r, offset, width), (row + r, start + offset), width)
