"""The ways in which kernels of rows and elements differ between targets.

A kernel that is the same arithmetic everywhere is written once, with a :class:`Backend` as its
first argument; ``cpu/backend.py`` and ``cuda/backend.py`` have one each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Concatenate, Protocol, TypeAlias

from maxtool.compiler.kernels.element_order import Combine, Fold
from maxtool.compiler.kernels.first_element import Ahead, FirstElement
from maxtool.compiler.kernels.kernel_builder import Buffer, Expr, Index, Indices
from maxtool.compiler.kernels.requests import Options, PrimFunc, Request, Row

# What emits work on an element, or on what else its name says.
Emit: TypeAlias = Callable[..., None]
# Neighbours of a row, from the first of them and their number: a vector, or one element.
Read: TypeAlias = Callable[[Index, int], Expr]
Body: TypeAlias = Callable[[Index, int], None]
Element: TypeAlias = Callable[[Expr], Expr]
Before: TypeAlias = Callable[[Expr, Expr, Expr], Expr]
# Values that belong to an element, or to a group of them.
Load: TypeAlias = Callable[[Expr], Sequence[Expr]]
RowBody: TypeAlias = Callable[[Expr, "RowThreads"], None]
VectorBody: TypeAlias = Callable[[Expr, Index, int], None]
# An output pixel: image, row and column.
Pixel: TypeAlias = Sequence[Expr]
# Vectors, each by its offset and its width.
Pieces: TypeAlias = Sequence[tuple[int, int]]
PixelBody: TypeAlias = Callable[[Pixel, Expr, Expr, Pieces], None]


class RowThreads(Protocol):
    """The threads that work on one row: one, or many."""

    def each(self, n: Index, body: Callable[[Expr], None]) -> None:
        """Run ``body(k)`` for every ``k`` below ``n``, shared out to the threads."""

    def each_vector(self, n: Index, body: Body) -> None:
        """Run ``body(k, width)`` for neighbours that together are all ``n`` elements of a row."""

    def each_group(self, count: int, size: Expr, load: Load, body: Emit) -> None:
        """Run ``body(k, width, *load(g))`` for neighbours of each group ``g`` of ``size`` elements.

        What is loaded is passed as it is, not as vectors.
        """

    def stream(self, n: Index, dtypes: Sequence[str], load: Load, body: Emit) -> None:
        """Run ``body(k, *load(k))`` for every ``k`` below ``n``, of which there is one at least.

        ``load``, of values of ``dtypes``, is from memory that the body does not write; it may be
        called some time before.
        """

    def reduce(self, value: Expr, combine: Combine, dtype: str = "float32") -> Expr:
        """Combine a value of each thread; every one of them gets the result."""

    def fold(self, read: Read, n: Index, dtype: str, how: Fold) -> Expr:
        """Combine all ``n`` elements of a row into one, which every thread gets."""

    def running_sums(self, n: Expr, read: Element, write: Emit, dtype: str) -> None:
        """Run ``write(k, before, after)`` with the sums before and after each of ``n`` elements.

        A group of threads is a warp.
        """

    def merge_runs(self, n: Expr, run: Expr, read: Element, write: Emit, before: Before) -> None:
        """Merge runs of ``run`` places in order, each with the next: ``write(k, place)``.

        ``read(k)`` is the k-th place, and ``before(left, right, or_equal)`` says of the elements at
        two places whether one comes before the other, or is equal to it.
        """

    def first(self, dtype: str, ahead: Ahead) -> FirstElement:
        """Return a search for the element of a row that comes first by an order."""

    def once(self) -> AbstractContextManager[None]:
        """Emit what one of the threads does."""

    def barrier(self) -> None:
        """Wait for all threads, and see what each has written."""


class Backend(Protocol):
    """The loops of one kind of target, and its accesses to memory.

    Values of ``read`` and the like are of the type that elements are computed with. A vector is a
    register of a CPU, or some registers of a GPU's thread: only these functions know its form.
    ``work`` is the operations for an element, or for a pixel, as a scale.
    """

    def each_row(
        self,
        rows: Expr,
        n: Index,
        body: RowBody,
        *,
        dtypes: Sequence[str] = ("float32",),
        work: int = 1,
        group: int | None = None,
    ) -> None:
        """Run ``body(row, threads)`` for every row of ``n`` elements.

        If ``n`` is a number, vectors of all ``dtypes`` divide the row. A row of a GPU has ``group``
        threads, unless the length decides.
        """

    def each_element(self, sizes: Indices, row: Callable[..., Emit], work: int = 1) -> None:
        """Run ``row(*outer)(k)`` for every element of a shape.

        ``row`` emits what the elements of a row have in common, whose places are ``outer`` along
        all dimensions but the last.
        """

    def each_vector(self, rows: Expr, dim: Index, body: VectorBody, work: Index = 1) -> None:
        """Run ``body(row, k, width)`` for neighbours that together are all elements [rows, dim]."""

    def each_pixel(
        self, sizes: Pixel, channels: tuple[int, int], body: PixelBody, *, dtype: str, work: int
    ) -> None:
        """Run ``body(pixel, group, first, pieces)`` for some channels of every pixel of images.

        ``channels`` are how many groups there are, and channels of a group; the body works on those
        from ``first`` on, which are all of one group.
        """

    def exp(self, value: Expr, dtype: str, width: int = 1) -> Expr:
        """Return ``e**value`` in float32 or float64."""

    def read(self, buffer: Buffer, index: Indices, dtype: str, width: int = 1) -> Expr:
        """Read neighbours along the last dimension."""

    def write(
        self, buffer: Buffer, value: Expr, index: Indices, dtype: str, width: int = 1
    ) -> None:
        """Store what was computed, rounded to nearest even."""

    def rounded(self, value: Expr, dtype: str, width: int = 1) -> Expr:
        """Return what was computed as it would be read after it was written."""

    def load_vector(
        self, buffer: Buffer, index: Indices, width: int, dtype: str = "float32"
    ) -> Expr:
        """Load float32 neighbours."""

    def compute(self, function: Callable[..., Expr], vectors: Sequence[Expr], width: int) -> Expr:
        """Return ``function(m, *elements)`` of vectors, by the arithmetic ``m`` of the target."""

    def store_vector(
        self, buffer: Buffer, vector: Expr, index: Indices, width: int, dtype: str = "float32"
    ) -> None:
        """Store float32 neighbours, rounded to nearest even."""

    def scatter_elements(
        self,
        x: Buffer,
        updates: Buffer,
        place: Callable[[Expr, Expr], Expr],
        y: Buffer,
        *,
        adds: bool,
    ) -> None:
        """Write ``x`` [rows, n] to ``y``, then updates [rows, m] at ``place(row, number)``.

        A place outside the row is left out. All updates of a place are added in their order, or
        the last one stays.
        """

    def scatter_rows(self, x: Buffer, updates: Buffer, at: Buffer, y: Buffer) -> None:
        """Write ``x`` to ``y``, and then ``updates[j]`` as row ``at[j]``, of several the last."""


def shared_row(
    request: Callable[Options, Request],
) -> Callable[[Callable[Concatenate[Backend, Options], PrimFunc]], Row]:
    """Return the row of a factory that takes a target's backend before the fields."""
    return lambda factory: (request, factory)


def row_reader(backend: Backend, x: Buffer, i: Expr, dtype: str) -> Read:
    """Return what reads neighbours of row ``i``."""
    return lambda k, width: backend.read(x, (i, k), dtype, width)
