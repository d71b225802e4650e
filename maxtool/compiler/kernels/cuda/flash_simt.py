"""Attention in tiles for any type and any width of heads, without tensor cores.

A block of 8 x 16 threads holds its queries in shared memory, and walks over tiles of keys: each
thread multiplies some rows with some keys, the maximum and the sum of a row are found among 16
lanes (the online softmax), the powers go through shared memory to be multiplied with the values,
which take the place of the keys. A tile is as large as shared memory and registers allow: in one of
64 x 64 a thread reads 12 numbers for 32 products of scores, four neighbours with one instruction
where their count allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import flash
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.attention_scores import HIDDEN
from maxtool.compiler.kernels.cuda.flash import AttentionOperands, KeyRange, QueryTile
from maxtool.compiler.kernels.kernel_options import HeadSizes
from maxtool.errors import CompilationFailed

DOWN, ACROSS = 8, 16  # threads of a block
THREADS = DOWN * ACROSS
SIZES = ((64, 64), (32, 32), (16, 32), (8, 16))  # rows and keys of a tile, the best first
SUMS = 64  # registers of a thread for results


@dataclass(frozen=True, slots=True)
class TileShape:
    """The size of a tile, and how its parts lie."""

    heads: HeadSizes  # widths of keys and values
    kind: str  # the type that is computed in
    rows: int  # queries of a tile
    keys: int  # keys of a tile

    def width(self, dim: int) -> int:
        """Neighbours of a key or value of ``dim`` elements that are multiplied at a time."""
        return 4 if self.kind == "float32" and dim % 4 == 0 else 1

    def pitch(self, dim: int) -> int:
        """Numbers from one row in shared memory to the next: rows begin in different banks."""
        return dim + 4 if self.width(dim) == 4 else dim | 1

    @property
    def value_width(self) -> int:
        """Neighbours of a value that are multiplied at a time."""
        return self.width(self.heads.value_dim)

    @property
    def columns(self) -> int:
        """Groups of neighbours of a value in one thread."""
        return -(-self.heads.value_dim // (self.value_width * ACROSS))

    @property
    def moved(self) -> int:
        """Numbers of shared memory for keys, then for values."""
        return self.keys * max(self.pitch(self.heads.key_dim), self.pitch(self.heads.value_dim))

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory."""
        queries = self.rows * self.pitch(self.heads.key_dim)
        numbers = queries + self.moved + self.rows * (self.keys + 1)
        return numbers * (8 if self.kind == "float64" else 4)

    @property
    def sums(self) -> int:
        """Registers of a thread for results."""
        return self.rows // DOWN * self.columns * self.value_width * self._words

    @property
    def min_blocks_per_sm(self) -> int:
        """Blocks of a multiprocessor: three, whose threads have 168 registers, or two with 255."""
        scores = self.rows // DOWN * (self.keys // ACROSS) * self._words
        return 3 if scores + self.sums <= SUMS else 2

    @property
    def _words(self) -> int:
        """Registers of a number."""
        return 2 if self.kind == "float64" else 1

    def fits(self, shared_memory: int) -> bool:
        """Return whether a block has room for it."""
        return self.shared_memory <= shared_memory and (self.sums <= SUMS or self.rows == DOWN)


def shape_for(heads: HeadSizes, dtype: str, shared_memory: int) -> TileShape:
    """The best size of tiles; heads may be so wide that none fits."""
    for rows, keys in SIZES:
        shape = TileShape(heads, dtype, rows, keys)
        if shape.fits(shared_memory):
            return shape
    raise CompilationFailed(
        f"attention with heads of {max(heads.key_dim, heads.value_dim)} elements does not fit into "
        f"the {shared_memory >> 10} KiB of shared memory of a block"
    )


def flash_simt(problem: AttentionOperands, shape: TileShape) -> None:
    """Emit attention in tiles."""
    with flash.tiles(problem, shape.rows, THREADS, shape.min_blocks_per_sm) as (tile, thread):
        _Block(shape, tile, thread).run()


class _Block:
    """State of a block, and its steps."""

    def __init__(self, shape: TileShape, tile: QueryTile, thread: b.Expr) -> None:
        self.problem, self.shape, self.tile, self.thread = tile.problem, shape, tile, thread
        self.down, self.across = thread // ACROSS, thread % ACROSS
        dtype, dynamic = shape.kind, shape.shared_memory > flash.STATIC
        self.pitch = shape.pitch(shape.heads.key_dim)  # of queries and keys
        self.queries = b.shared((shape.rows * self.pitch,), dtype, dynamic=dynamic)
        self.moved = b.shared((shape.moved,), dtype, dynamic=dynamic)
        self.powers = b.shared((shape.rows * (shape.keys + 1),), dtype, dynamic=dynamic)
        self.depth = shape.rows // DOWN
        self.scores = b.scratch((self.depth, shape.keys // ACROSS), dtype)
        sums = (self.depth, shape.columns * shape.value_width)
        self.out = b.scratch(sums, dtype)
        self.top, self.total = b.scratch((self.depth,), dtype), b.scratch((self.depth,), dtype)
        self.limits = [b.scratch((self.depth,), "int32") for _ in KeyRange._fields]

    def run(self) -> None:
        """Emit the whole block."""
        shape, tile = self.shape, self.tile
        self._start()
        count = b.index(b.ceildiv(b.greatest(tile.end - tile.begin, 0), shape.keys))
        with T.serial(count) as step:
            first = b.index(tile.begin + step * shape.keys)
            b.barrier()  # the values of the step before were read
            self._load(self.problem.k, first, shape.heads.key_dim)
            b.barrier()
            self._score()
            with T.unroll(b.int32(self.depth)) as i:
                self._take(i, b.let(T.Cast("int32", step * shape.keys)))
            b.barrier()
            self._load(self.problem.v, first, shape.heads.value_dim)
            b.barrier()
            self._add()
        with T.unroll(b.int32(self.depth)) as i:
            self._finish(i)

    def _start(self) -> None:
        """Copy the queries; begin with nothing seen."""
        shape, problem, zero = self.shape, self.problem, self.problem.scores.number(0)
        dtype = problem.types[0]
        width = self._width(dtype, shape.heads.key_dim)
        units = shape.heads.key_dim // width

        def copy(row: b.Expr, unit: b.Expr) -> None:
            head, query = self.tile.split(row)
            source_index = (*problem.place(self.tile.at, head, query), unit * width)
            to = row * self.pitch + unit * width
            self._put(self.queries, to, problem.q, source_index, width, dtype)

        self._each(shape.rows, units, copy)
        with T.unroll(b.int32(self.depth)) as i:
            b.store(self.top, problem.scores.number(HIDDEN), (i,))
            b.store(self.total, zero, (i,))
            with T.unroll(b.int32(shape.columns * shape.value_width)) as j:
                b.store(self.out, zero, (i, j))
            _, query = self.tile.split(self._row(i))
            for held, limit in zip(self.limits, self.tile.limits(query), strict=True):
                if limit is not None:
                    b.store(held, limit, (i,))

    def _row(self, i: b.Expr) -> b.Expr:
        """One of the rows of this thread."""
        return b.let(self.down + i * DOWN)

    def _width(self, dtype: str, dim: int) -> int:
        return 1 if self.shape.kind == "float64" else min(4, ln.widest(dtype, dim))

    def _each(self, rows: int, units: int, body: Callable[[b.Expr, b.Expr], None]) -> None:
        """Run ``body(row, unit)`` for all of them, neighbours on neighbouring threads."""
        total = rows * units
        with T.serial(b.int32(-(-total // THREADS)), unroll=4) as step:
            index = b.let(step * THREADS + self.thread)
            with b.when(index < total):
                row = b.let(T.truncdiv(index, b.int32(units)))
                body(row, b.let(index - row * units))

    def _put(
        self,
        target: b.Buffer,
        to: b.Expr,
        source: b.Buffer,
        target_index: tuple[b.Expr, ...],
        width: int,
        dtype: str,
        inside: b.Expr | None = None,
    ) -> None:
        """Copy neighbours into shared memory, as the type computed in; zeros if not ``inside``."""
        zero, start = self.problem.scores.number(0), b.let(to)
        is_wide = dtype == "float64"
        numbers = [source[target_index]] if is_wide else ln.read(source, target_index, width, dtype)
        for lane in range(width):
            value = numbers[lane] if inside is None else T.Select(inside, numbers[lane], zero)
            b.store(target, value, (start + lane,))

    def _load(self, source: b.Buffer, first: b.Expr, dim: int) -> None:
        """Copy a tile of keys or values; zeros where there is none that is seen.

        The last is read again then: loads wait for no branch, and are in flight together.
        """
        dtype, tile = self.problem.types[1], self.tile
        width, pitch = self._width(dtype, dim), self.shape.pitch(dim)

        def copy(key: b.Expr, unit: b.Expr) -> None:
            at = b.index(first + key)
            source_index = (tile.at, tile.kv, b.index(b.least(at, tile.end - 1)), unit * width)
            to = key * pitch + unit * width
            self._put(self.moved, to, source, source_index, width, dtype, at < tile.end)

        self._each(self.shape.keys, dim // width, copy)

    def _score(self) -> None:
        """Multiply the thread's rows with its keys."""
        shape, width = self.shape, self.shape.width(self.shape.heads.key_dim)
        depth, across = b.int32(self.depth), b.int32(shape.keys // ACROSS)
        with T.unroll(depth) as i, T.unroll(across) as j:
            b.store(self.scores, self.problem.scores.number(0), (i, j))
        with T.serial(b.int32(shape.heads.key_dim // width), unroll=False) as step:
            rows = b.scratch((self.depth, width), shape.kind)
            with T.unroll(depth) as i:
                at = (self.down + i * DOWN) * self.pitch + step * width
                b.store(rows, b.load(self.queries, (at,), width), (i, 0), width)
            with T.unroll(across) as j:
                at = (self.across + j * ACROSS) * self.pitch + step * width
                key = self._held(self.moved, at, width)
                with T.unroll(depth) as i, T.unroll(b.int32(width)) as lane:
                    more = rows[i, lane] * key[lane]
                    b.store(self.scores, self.scores[i, j] + more, (i, j))

    def _held(self, source: b.Buffer, at: b.Expr, width: int) -> b.Buffer:
        held = b.scratch((width,), self.shape.kind)
        b.store(held, b.load(source, (at,), width), (0,), width)
        return held

    def _take(self, i: b.Expr, first: b.Expr) -> None:
        """Turn the scores of a row into powers, and scale what it has to their maximum."""
        scores, dtype, across = self.problem.scores, self.shape.kind, self.shape.keys // ACROSS
        before = b.let(self.top[i])
        own = self._hide(i, first)
        top = b.let(T.max(before, b.warp_reduce(own, T.max, ACROSS, dtype=dtype)))
        base = b.let(scores.base(top))
        shrink = b.let(scores.power(before, base))
        b.store(self.top, top, (i,))
        b.store(self.total, self.total[i] * shrink, (i,))
        with T.unroll(b.int32(across)) as j:
            power = b.let(scores.power(self.scores[i, j], base))
            b.store(self.total, self.total[i] + power, (i,))
            offset = self._row(i) * (self.shape.keys + 1) + self.across + j * ACROSS
            b.store(self.powers, power, (offset,))
        with T.unroll(b.int32(self.shape.columns * self.shape.value_width)) as j:
            b.store(self.out, self.out[i, j] * shrink, (i, j))

    def _hide(self, i: b.Expr, first: b.Expr) -> b.Expr:
        """Make scores of the products of a row; the greatest of this thread's."""
        scores, mask = self.problem.scores, self.problem.mask
        high, low = self.limits
        limits = KeyRange(high[i], None if scores.window is None else low[i])
        query = None if mask is None else self.tile.split(self._row(i))
        own = b.cell(scores.number(HIDDEN))
        with T.unroll(b.int32(self.shape.keys // ACROSS)) as j:
            key = b.let(first + self.across + j * ACROSS)
            score = b.let(scores.of(self.scores[i, j]))
            if query is not None:
                score = self.tile.masked(score, *query, key)
            b.store(self.scores, self.tile.hidden(score, limits, key), (i, j))
            own.set(T.max(own.value, self.scores[i, j]))
        return own.value

    def _unit(self, column: int) -> b.Expr:
        """The group of neighbours of a value; those that there are not repeat the last."""
        units = self.shape.heads.value_dim // self.shape.value_width
        unit = self.across + column * ACROSS
        return unit if (column + 1) * ACROSS <= units else T.min(unit, b.int32(units - 1))

    def _add(self) -> None:
        """Add the values of the tile, times their powers."""
        shape, width, depth = self.shape, self.shape.value_width, b.int32(self.depth)
        pitch = shape.pitch(shape.heads.value_dim)
        with T.serial(b.int32(shape.keys), unroll=2) as key:
            powers = b.scratch((self.depth,), shape.kind)
            with T.unroll(depth) as i:
                at = (self.down + i * DOWN) * (shape.keys + 1) + key
                b.store(powers, self.powers[at], (i,))
            for column in range(shape.columns):
                at = key * pitch + self._unit(column) * width
                value = self._held(self.moved, at, width)
                with T.unroll(depth) as i, T.unroll(b.int32(width)) as lane:
                    target_index = (i, column * width + lane)
                    more = powers[i] * value[lane]
                    b.store(self.out, self.out[target_index] + more, target_index)

    def _finish(self, i: b.Expr) -> None:
        """Divide by the sum and write a row; zeros if it saw no key."""
        shape, problem, kind = self.shape, self.problem, self.shape.kind
        total = b.let(b.warp_reduce(self.total[i], b.add, ACROSS, dtype=kind))
        row = self._row(i)
        head, query = self.tile.split(row)
        inverse = b.let(problem.inverse(total, self.top[i], head))
        offsets = problem.place(self.tile.at, head, query)
        units = shape.heads.value_dim // shape.value_width

        def write(column: int) -> None:
            with T.unroll(b.int32(shape.value_width)) as lane:
                value = self.out[i, column * shape.value_width + lane] * inverse
                element = self._unit(column) * shape.value_width + lane
                dtype = problem.types[2]
                value = value if dtype == "float64" else b.to_storage(value, dtype)
                b.store(problem.y, value, (*offsets, element))

        with b.when(row <= self.tile.last):
            for column in range(shape.columns):
                if (column + 1) * ACROSS <= units:
                    write(column)
                else:
                    with b.when(self.across + column * ACROSS < units):
                        write(column)
