"""Activations quantized on the fly, for products with quantized weights.

Each stretch of as many terms as a block of the weights has becomes int8 with one float32 scale,
as in llama.cpp: 127 stands for the largest magnitude, and numbers between two steps go to the
nearest, ties to even. A stretch with a NaN or an infinity has the scale NaN, so that all that its
row is multiplied with is NaN. Magnitudes are taken as at least ``LEAST``: numbers far below it
become zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import subroutines
from maxtool.compiler.kernels.cpu.integer_dot import Dot, InstructionSet
from maxtool.compiler.quantized_layout import GROUP, RecordLayout

STEPS = 127.0
# The largest magnitude of a stretch of zeros: its inverse and its 127th part are normal numbers.
LEAST = 2.0**-100
INFINITY_BITS = 0x7F800000
SIGN_MASK = 0x7FFFFFFF

CHUNK = 32


@dataclass(frozen=True, slots=True)
class Activations:
    """Tiles of ``rows`` quantized rows each.

    Attributes:
        quants: [tiles, k / (4 * depth) * parts, rows * depth] int32: 4 terms each, or 2 as int16,
            as ``dot`` wants them.
        scales: [tiles, spans, rows].
        starts: [tiles, k / terms, rows] int32: what sums of terms that share a scale begin at, so
            that the zero of the weights is taken off; None if it is 0.
        sums: [tiles, k / terms, rows] float32, of the quants, for panels times the scale; None if
            nothing asks for them.
    """

    layout: RecordLayout
    dot: Dot
    rows: int
    quants: b.Buffer
    scales: b.Buffer
    starts: b.Buffer
    sums: b.Buffer

    @property
    def spans(self) -> b.Expr:
        """Stretches of a row that have a scale."""
        return self.scales.shape[1]

    def operand(self, tile: b.Index, step: b.Index, row: int) -> list[b.Expr]:
        """Terms of a row, or of those that are multiplied with it, which ``IntegerDot.add`` takes.

        ``step`` counts what it takes, groups of 4 terms or several.
        """
        parts, depth = self.dot.parts, self.dot.depth
        if self.dot.rows > 1:
            return [b.load(self.quants, (tile, step, row * depth), self.dot.rows * depth)]
        return [self.quants[tile, step * parts + part, row] for part in range(parts)]

    def first_bits(self, tile: b.Index, part: b.Index, row: int) -> list[b.Expr]:
        """Bits that sums of terms which share a scale begin at, for rows multiplied at once."""
        rows = range(row, row + self.dot.rows)
        if self.starts is None:
            return [b.int32(0) for _ in rows]
        return [self.starts[tile, part, each] for each in rows]


class QuantizedRows:
    """Tiles of quantized rows, as the layouts of several weights want them.

    Layouts whose activations have scales for as many terms share these and the quants, those that
    take off the same zero for the same terms share everything.
    """

    def __init__(
        self,
        machine: InstructionSet,
        layouts: Iterable[RecordLayout],
        sizes: tuple[b.Index, b.Index],
        rows: int,
        memory: Callable[..., b.Buffer] = b.workspace,
    ) -> None:
        """Take memory for tiles of ``rows``; ``sizes`` are how many tiles, and terms of a row."""
        self._machine, self._sizes, self.rows = machine, sizes, rows
        self._memory = memory
        self._of: dict[tuple[object, ...], Activations] = {}
        for layout in layouts:
            dot = machine.dot(layout)
            if _needs(layout, dot) not in self._of:
                self._of[_needs(layout, dot)] = self._activations(layout, dot)

    def of(self, layout: RecordLayout) -> Activations:
        """The rows as a layout wants them."""
        return self._of[_needs(layout, self._machine.dot(layout))]

    def quantize(self, x: b.Buffer, tile: b.Expr, sources: Sequence[tuple[b.Expr, ...]]) -> None:
        """Quantize rows of ``x``, one for each row of a tile."""
        floats = self._machine.floats
        for sharing in self._sharing():
            if self.rows == 1:  # all threads wait for it: what sizes LLVM knows count
                _quantize_row(sharing, x, tile, 0, sources[0], floats)
                continue
            for row, source in enumerate(sources):
                number = b.integer(row)
                subroutines.call(_quantize_row, [sharing], x, tile, number, source, floats)

    def _sharing(self) -> list[list[Activations]]:
        """The activations by what they share."""
        groups: dict[tuple[int, int, int], list[Activations]] = {}
        for each in self._of.values():
            groups.setdefault(_quants(each.layout, each.dot), []).append(each)
        return list(groups.values())

    def _activations(self, layout: RecordLayout, dot: Dot) -> Activations:
        """Memory, but for what others have."""
        tiles, k = self._sizes
        memory, parts = self._memory, (tiles, b.quotient(k, layout.terms), self.rows)
        same = (
            each
            for each in self._of.values()
            if _quants(each.layout, each.dot) == _quants(layout, dot)
        )
        shared = next(same, None)
        if shared is None:
            steps = b.quotient(k, GROUP * dot.depth) * dot.parts
            quants = memory((tiles, steps, self.rows * dot.depth), "int32")
            scales = memory((tiles, b.quotient(k, layout.span), self.rows))
        else:
            quants, scales = shared.quants, shared.scales
        return Activations(
            layout,
            dot,
            self.rows,
            quants,
            scales,
            starts=memory(parts, "int32") if dot.zero(layout) else None,
            sums=memory(parts) if dot.needs_sums(layout) else None,
        )


def _quants(layout: RecordLayout, dot: Dot) -> tuple[int, int, int]:
    """Key of layouts that share quants and their scales."""
    return layout.span, dot.parts, dot.depth


def _needs(layout: RecordLayout, dot: Dot) -> tuple[object, ...]:
    """Key of layouts that share activations."""
    zero = dot.zero(layout)
    return (*_quants(layout, dot), dot.sums, layout.terms, zero, dot.needs_sums(layout))


def _quantize_row(
    sharing: Sequence[Activations],
    x: b.Buffer,
    tile: b.Expr,
    row: b.Index,
    source: tuple[b.Expr, ...],
    width: int,
) -> None:
    """Quantize a row of ``x`` for activations that share quants."""
    first, *others = sharing
    work = _Row(first, others, x, tile, row, source, width)
    with T.serial(b.quotient(x.shape[-1], first.layout.span)) as span:
        work.quantize(span)


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a tile while it is quantized."""

    to: Activations
    others: Sequence[Activations]  # of the same quants
    x: b.Buffer
    tile: b.Expr
    row: b.Index
    source: tuple[b.Expr, ...]
    width: int

    def quantize(self, span: b.Expr) -> None:
        """The terms that share a scale of activations."""
        chunks = self.to.layout.span // CHUNK
        first = b.index(span * chunks)
        top = self._largest(first, chunks)
        magnitude = b.let(T.max(T.reinterpret("float32", top), T.float32(LEAST)))
        is_finite = top < b.int32(INFINITY_BITS)
        step = b.let(T.Select(is_finite, magnitude / T.float32(STEPS), T.float32(float("nan"))))
        b.store(self.to.scales, step, (self.tile, span, self.row))
        inverse = b.let(T.float32(STEPS) / magnitude)
        with T.serial(b.integer(chunks)) as c:
            self._chunk(b.index(first + c), inverse, step)

    def _largest(self, first: b.Expr, chunks: int) -> b.Expr:
        """Bits of the largest magnitude: of integers, NaN is the largest and no comparison odd."""
        integers = b.vector_type("int32", self.width)
        tops = b.scratch((self.width,), "int32")
        b.store(tops, b.splat(b.int32(0), self.width), (0,), self.width)
        with T.serial(b.integer(chunks)) as c:
            for value in self._vectors(first + c):
                bits = T.reinterpret(integers, value) & b.splat(b.int32(SIGN_MASK), self.width)
                here = b.load(tops, (0,), self.width)
                b.store(tops, T.max(here, bits), (0,), self.width)
        return b.let(b.fold(b.load(tops, (0,), self.width), self.width, T.max))

    def _vectors(self, chunk: b.Expr) -> list[b.Expr]:
        start = chunk * CHUNK
        places = range(0, CHUNK, self.width)
        return [b.load(self.x, (*self.source, start + at), self.width) for at in places]

    def _chunk(self, chunk: b.Expr, inverse: b.Expr, step: b.Expr) -> None:
        """32 terms, of a scale: their quants, and what follows from their sums."""
        quants = [b.let(self._rounded(value, inverse)) for value in self._vectors(chunk)]
        for i, values in enumerate(quants):
            self._store_quants(values, b.index(chunk * (CHUNK // GROUP) + i * self.width // GROUP))
        for to in (self.to, *self.others):
            if to.starts is not None or to.sums is not None:
                self._chunk_sums(to, quants, chunk, step)

    def _chunk_sums(
        self, to: Activations, quants: Sequence[b.Expr], chunk: b.Expr, step: b.Expr
    ) -> None:
        """Sums of those of 32 terms that share a scale of weights."""
        terms = to.layout.terms
        count = terms // self.width
        for part in range(CHUNK // terms):
            own = quants[part * count : (part + 1) * count]
            self._store_sums(to, own, b.index(chunk * (CHUNK // terms) + part), step)

    def _rounded(self, value: b.Expr, inverse: b.Expr) -> b.Expr:
        """The nearest integers, ties to even, as int32."""
        shifted = value * b.splat(inverse, self.width) + b.splat(b.ROUND, self.width)
        bits = b.let(T.reinterpret(b.vector_type("int32", self.width), shifted))
        return bits - b.splat(b.int32(b.ROUND_BITS), self.width)

    def _store_quants(self, values: b.Expr, group: b.Expr) -> None:
        """Quants of ``width`` terms, of which 4 are a group."""
        parts, depth = self.to.dot.parts, self.to.dot.depth
        for part, words in enumerate(map(b.let, self._packed(values))):
            for i in range(self.width // GROUP):
                word = tirx.Shuffle([words], [i])
                step, at = b.quotient(group + i, depth), b.remainder(group + i, depth)
                step, place = step * parts + part, self.row * depth + at
                b.store(self.to.quants, word, (self.tile, b.index(step), b.index(place)))

    def _packed(self, values: b.Expr) -> list[b.Expr]:
        """An int32 for each group: its 4 terms as bytes, or two of them as int16, then the rest."""
        groups = self.width // GROUP
        if not self.to.dot.words:
            narrow = b.let(T.Cast(b.vector_type("int8", self.width), values))
            return [T.reinterpret(b.vector_type("int32", groups), narrow)]
        a, c, e, f = (
            tirx.Shuffle([values], list(range(term, self.width, GROUP))) for term in range(GROUP)
        )
        low = b.splat(b.int32(0xFFFF), groups)
        high = b.splat(b.int32(16), groups)
        return [(first & low) | T.shift_left(second, high) for first, second in ((a, e), (c, f))]

    def _store_sums(
        self, to: Activations, quants: Sequence[b.Expr], part: b.Expr, step: b.Expr
    ) -> None:
        """The sums of terms that share a scale of weights."""
        total = quants[0]
        for values in quants[1:]:
            total = total + values
        width = self.width
        while width > GROUP:  # as b.fold, but for the last two steps
            width //= 2
            total = b.let(total)
            halves = [list(range(start, start + width)) for start in (0, width)]
            total = b.add(*(tirx.Shuffle([total], half) for half in halves))
        total = b.let(total)
        terms = [tirx.Shuffle([total], [term]) for term in range(GROUP)]
        low, high = b.let(terms[0] + terms[1]), b.let(terms[2] + terms[3])
        place = (self.tile, part, self.row)
        if to.starts is not None:
            zero = b.int32(-to.dot.zero(to.layout))
            bits = to.dot.start_bits(b.let(low * zero), b.let(high * zero))
            b.store(to.starts, bits, place)
        if to.sums is not None:
            whole = T.Cast("float32", low + high)
            b.store(to.sums, whole * step if to.dot.of_panels else whole, place)
