"""One task of attention by blocks: a tile of queries of one head against all keys that they see."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e
from maxtool.compiler.kernels.cpu.transpose import transposed
from maxtool.compiler.kernels.kernel_options import HeadSizes, Mask

KEYS = 128  # keys in a block: a multiple of every register tile's columns
ROWS = 72  # queries in a task: a multiple of every register tile's rows
SIDE = 8  # of the squares by which keys are transposed
HIDDEN = float("-inf")  # score of a key that a query does not see


@dataclass(frozen=True, slots=True)
class MaskArgument:
    """A mask and the buffer that holds it."""

    mask: Mask
    buffer: b.Buffer

    @property
    def hides_alike(self) -> bool:
        """Return whether it hides a key from all queries or from none."""
        return self.mask.single[2]

    def added(self, at: b.Expr, head: b.Expr, query: b.Index, key: b.Expr) -> b.Expr:
        """Return what is added to a score; minus infinity hides the key."""
        full = (at, head, query, key)
        index = [0 if single else i for single, i in zip(self.mask.single, full, strict=True)]
        dtype = self.mask.dtype
        if dtype == "bool":
            return T.Select(self.buffer[tuple(index)], T.float32(0), T.float32(HIDDEN))
        return e.converted(e.read(self.buffer, index, dtype), dtype, "float32")


@dataclass(frozen=True, slots=True)
class BlockAttentionKernel:
    """The sizes and buffers of one kernel while it is built."""

    tile: RegisterTile
    dtype: str
    heads: HeadSizes
    causal: bool
    scale: float
    out: str
    by_token: bool
    batch: b.Expr
    queries: b.Expr
    keys: b.Expr
    q: b.Buffer
    k: b.Buffer
    v: b.Buffer
    mask: MaskArgument | None
    y: b.Buffer

    def element(self, at: b.Index, head: b.Index, row: b.Index, offset: b.Index) -> b.Indices:
        """The index of an element of a head, in the order of dimensions that operands have."""
        return (at, row, head, offset) if self.by_token else (at, head, row, offset)

    @property
    def vectors(self) -> int:
        """Vectors in a row of the register tile."""
        return self.tile.nr // self.tile.width


@dataclass(frozen=True, slots=True)
class BlockAttentionTask:
    """Work of one task: its queries, and its accumulators."""

    kernel: BlockAttentionKernel
    at: b.Expr  # index in the batch
    head: b.Expr  # of the queries
    shared: b.Expr  # head of the keys
    first: b.Expr  # first query of the tile
    rows: b.Expr  # queries of the tile that exist
    queries: b.Buffer  # [ROWS, key_dim], scaled
    keys: b.Buffer  # [key_dim, KEYS] of the current block
    hidden: b.Buffer  # [KEYS] what the mask adds to scores, of the block or of one query
    scores: b.Buffer  # [mr, KEYS] of the current group, then their exponentials
    highest: b.Buffer  # [mr] of the scores of the current group and block
    origin: b.Buffer  # [mr] what is taken off these scores
    shrink: b.Buffer  # [mr] what sums of earlier blocks are multiplied with
    top: b.Buffer  # [ROWS] running maximum
    total: b.Buffer  # [ROWS, width] running sums of exponentials, a sum for each lane
    out: b.Buffer  # [ROWS, value_dim] running weighted values

    def run(self) -> None:
        """Load the queries, walk the blocks of keys, and write the rows."""
        kernel, mr = self.kernel, self.kernel.tile.mr
        groups = b.index(b.ceildiv(self.rows, mr))
        with T.serial(groups * mr) as r:
            self._load_query(r)
        end = b.index(kernel.keys)
        if kernel.causal:
            seen = self.first + self.rows + kernel.keys - kernel.queries
            end = b.index(b.least(b.greatest(seen, 0), kernel.keys))
        with T.serial(b.ceildiv(end, KEYS)) as block:
            base = b.index(block * KEYS)
            self._add_block(base, b.index(b.least(end - base, KEYS)), groups)
        with T.serial(self.rows) as r:
            self._finish(r)

    def _load_query(self, r: b.Expr) -> None:
        """Scale a query, or repeat the last one beyond the end; it has seen nothing yet."""
        kernel, width = self.kernel, self.kernel.tile.width
        query = b.index(b.least(self.first + r, kernel.queries - 1))

        def load(offset: b.Index, n: int) -> None:
            source = kernel.element(self.at, self.head, query, offset)
            value = e.read(kernel.q, source, kernel.dtype, n) * b.splat(kernel.scale, n)
            b.store(self.queries, value, (r, offset), n)

        def clear(offset: b.Index, n: int) -> None:
            b.store(self.out, b.splat(0.0, n), (r, offset), n)

        b.each_vector(kernel.heads.key_dim, width, load)
        b.store(self.top, T.float32(HIDDEN), (r,))
        b.store(self.total, b.splat(0.0, width), (r, 0), width)
        b.each_vector(kernel.heads.value_dim, width, clear)

    def _add_block(self, base: b.Expr, count: b.Expr, groups: b.Expr) -> None:
        """Take a block of keys and values in, unless the mask hides all of it."""
        mask = self.kernel.mask
        if mask is None or not mask.hides_alike:
            self._add_groups(base, count, groups)
            return
        seen = b.cell(b.int32(0))
        with T.serial(count) as i:
            added = b.let(mask.added(self.at, self.head, 0, b.index(base + i)))
            b.store(self.hidden, added, (i,))
            seen.set(T.Select(tirx.EQ(added, T.float32(HIDDEN)), seen.value, b.int32(1)))
        with b.when(seen.value > 0):
            self._add_groups(base, count, groups)

    def _add_groups(self, base: b.Expr, count: b.Expr, groups: b.Expr) -> None:
        """Take a block of keys and values in, for one group of queries after the other."""
        tile = self.kernel.tile
        self._copy_keys(base, count)
        with T.serial(groups) as group:
            row = b.index(group * tile.mr)
            self._score(row, count)
            with T.serial(b.integer(tile.mr)) as r:
                self._hide(r, b.index(row + r), base, count)
            self._raise_maxima(row)
            with T.serial(b.integer(tile.mr)) as r:
                self._add_exponentials(r, b.index(row + r), count)
            for left in range(0, self.kernel.heads.value_dim, tile.nr):
                self._add_values(row, base, count, left)

    def _copy_keys(self, base: b.Expr, count: b.Expr) -> None:
        """Transpose a block of keys by squares; the last key is repeated to fill the last one."""
        kernel, last = self.kernel, self.kernel.keys - 1
        dim = kernel.heads.key_dim
        with T.serial(b.ceildiv(count, SIDE)) as square:
            start = b.index(square * SIDE)
            rows = [b.index(b.least(base + start + i, last)) for i in range(SIDE)]

            def key(row: b.Expr, d: b.Index, width: int) -> b.Expr:
                source = kernel.element(self.at, self.shared, row, d)
                return b.let(e.read(kernel.k, source, kernel.dtype, width))

            with T.serial(b.integer(dim // SIDE)) as part:
                d = b.index(part * SIDE)
                for offset, vector in enumerate(transposed([key(row, d, SIDE) for row in rows])):
                    b.store(self.keys, vector, (d + offset, start), SIDE)
            for d in range(dim - dim % SIDE, dim):
                for i, row in enumerate(rows):
                    b.store(self.keys, key(row, d, 1), (d, start + i))

    def _score(self, row: b.Expr, count: b.Expr) -> None:
        """Scores of a group of queries with every key of the block."""
        tile = self.kernel.tile
        with T.serial(b.ceildiv(count, tile.nr)) as part:
            start = b.index(part * tile.nr)
            sums = b.Registers(tile.mr, tile.nr, tile.width)
            sums.clear()
            with T.serial(b.integer(self.kernel.heads.key_dim)) as d:
                keys = [b.let(b.load(self.keys, (d, start + at), n)) for at, n in sums.pieces]
                for r in range(tile.mr):
                    query = b.let(b.splat(self.queries[row + r, d], tile.width))
                    for (offset, width), key in zip(sums.pieces, keys, strict=True):
                        sums.add(r, offset, width, query * key)
            for r, offset, width in sums.places:
                b.store(self.scores, sums.get(r, offset, width), (r, start + offset), width)

    def _vectors(self, count: b.Expr) -> b.Expr:
        """Vectors of the scores of a query with so many keys."""
        return b.index(b.ceildiv(count, self.kernel.tile.nr) * self.kernel.vectors)

    def _raise_maxima(self, row: b.Expr) -> None:
        """Update the maxima of a group of queries, and by what their sums shrink: all at once."""
        for at, width in b.widths(self.kernel.tile.mr, self.kernel.tile.width):
            old = b.let(b.load(self.top, (row + at,), width))
            top = b.let(T.max(old, b.load(self.highest, (at,), width)))
            b.store(self.top, top, (row + at,), width)
            # While nothing was seen, a difference from the maximum would be NaN.
            hidden, zero = b.splat(HIDDEN, width), b.splat(0.0, width)
            origin = b.let(T.Select(tirx.EQ(top, hidden), zero, top))
            b.store(self.origin, origin, (at,), width)
            b.store(self.shrink, b.exp(old - origin, width), (at,), width)

    def _add_exponentials(self, r: b.Expr, row: b.Expr, count: b.Expr) -> None:
        """Turn the scores of a query into exponentials; update its sums, and its values' scale."""
        width = self.kernel.tile.width
        self._scale(row, b.let(self.shrink[r]))
        origin = b.let(b.splat(self.origin[r], width))
        total = b.Registers(1, width, width)
        total.clear()
        with T.serial(self._vectors(count)) as i:
            score = b.load(self.scores, (r, i * width), width)
            value = b.let(b.exp(score - origin, width))
            b.store(self.scores, value, (r, i * width), width)
            total.add(0, 0, width, value)
        total.add(0, 0, width, b.load(self.total, (row, 0), width))
        b.store(self.total, total.get(0, 0, width), (row, 0), width)

    def _hide(self, r: b.Expr, row: b.Expr, base: b.Expr, count: b.Expr) -> None:
        """Hide what a query may not see, and keep the highest of its scores."""
        width = self.kernel.tile.width
        seen = self._seen(row, base, count)
        highest = b.Registers(1, width, width)
        highest.set(0, 0, width, b.splat(HIDDEN, width))
        with T.serial(self._vectors(count)) as i:
            score = self._visible(r, b.index(i * width), seen)
            b.store(self.scores, score, (r, i * width), width)
            highest.set(0, 0, width, T.max(highest.get(0, 0, width), score))
        b.store(self.highest, b.fold(highest.get(0, 0, width), width, T.max), (r,))

    def _seen(self, row: b.Expr, base: b.Expr, count: b.Expr) -> b.Expr:
        """The keys of the block that a query sees, as int32; its own mask is read on the way."""
        kernel = self.kernel
        query = b.index(b.least(self.first + row, kernel.queries - 1))
        if kernel.mask is not None and not kernel.mask.hides_alike:
            with T.serial(count) as i:
                added = kernel.mask.added(self.at, self.head, query, b.index(base + i))
                b.store(self.hidden, added, (i,))
        limit = count
        if kernel.causal:
            limit = b.least(count, query + kernel.keys - kernel.queries + 1 - base)
        return b.let(T.Cast("int32", limit))

    def _visible(self, r: b.Expr, start: b.Expr, seen: b.Expr) -> b.Expr:
        """A vector of scores, minus infinity where a key is hidden."""
        width = self.kernel.tile.width
        hidden = b.splat(HIDDEN, width)
        score = b.load(self.scores, (r, start), width)
        if self.kernel.mask is not None:
            added = b.let(b.load(self.hidden, (start,), width))
            score = T.Select(tirx.EQ(added, hidden), hidden, score + added)
        first = b.splat(T.Cast("int32", start), width)
        index = first + T.ramp(b.int32(0), b.int32(1), width)
        return b.let(T.Select(index < b.splat(seen, width), score, hidden))

    def _scale(self, row: b.Expr, shrink: b.Expr) -> None:
        """Scale what a query has summed up."""
        width = self.kernel.tile.width

        def scale(buffer: b.Buffer, offset: b.Index, n: int) -> None:
            value = b.load(buffer, (row, offset), n) * b.splat(shrink, n)
            b.store(buffer, value, (row, offset), n)

        scale(self.total, 0, width)
        b.each_vector(self.kernel.heads.value_dim, width, lambda o, n: scale(self.out, o, n))

    def _add_values(self, row: b.Expr, base: b.Expr, count: b.Expr, left: int) -> None:
        """Add the block's values, weighted, to a group; the columns of a register tile."""
        kernel, tile = self.kernel, self.kernel.tile
        columns = min(tile.nr, kernel.heads.value_dim - left)
        sums = b.Registers(tile.mr, columns, tile.width)
        for r, offset, width in sums.places:
            sums.set(r, offset, width, b.load(self.out, (row + r, left + offset), width))
        with T.serial(count) as i:
            key = b.index(base + i)
            values = [self._value(key, left + at, n) for at, n in sums.pieces]
            for r in range(tile.mr):
                weight = b.let(self.scores[r, i])
                for (offset, width), value in zip(sums.pieces, values, strict=True):
                    sums.add(r, offset, width, b.splat(weight, width) * value)
        for r, offset, width in sums.places:
            b.store(self.out, sums.get(r, offset, width), (row + r, left + offset), width)

    def _value(self, key: b.Expr, offset: int, width: int) -> b.Expr:
        """Neighbouring elements of a value."""
        source = self.kernel.element(self.at, self.shared, key, offset)
        return b.let(e.read(self.kernel.v, source, self.kernel.dtype, width))

    def _finish(self, r: b.Expr) -> None:
        """Divide by the sum and write a row; zeros where nothing was seen."""
        kernel, width = self.kernel, self.kernel.tile.width
        total = b.let(b.fold(b.load(self.total, (r, 0), width), width, b.add))
        zero = T.float32(0)
        inverse = b.let(T.float32(1) / T.Select(tirx.EQ(total, zero), T.float32(1), total))

        def write(offset: b.Index, n: int) -> None:
            value = b.load(self.out, (r, offset), n) * b.splat(inverse, n)
            target = kernel.element(self.at, self.head, b.index(self.first + r), offset)
            e.write(kernel.y, value, target, kernel.out, n)

        b.each_vector(kernel.heads.value_dim, width, write)
