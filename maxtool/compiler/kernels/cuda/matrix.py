"""Matrices in global memory as products read them: sixteen bytes of a row at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln

# Bytes that one thread moves at a time: the widest load there is.
PIECE_BYTES = 16
WORDS = PIECE_BYTES // 4

# Values of a type in such a piece.
PIECE = {"float32": 4, "float16": 8, "bfloat16": 8}

# From a row of a tile, or a column, to the row of x or of the weights that is read for it.
Source: TypeAlias = Callable[[b.Expr], b.Expr]

MMA = {"float16": "mt_mma_f16", "bfloat16": "mt_mma_bf16"}


class Pieces(ABC):
    """Rows that products read sixteen bytes at a time, whether or not they lie so in memory."""

    __slots__ = ()

    buffer: b.Buffer  # where they are
    rows: b.Expr  # how many there are; not 0 where one is read
    terms: b.Expr  # how long they are; not 0 where one is read either
    dtype: str  # float32, float16 or bfloat16 (passed as uint16 bits)
    aligned: bool  # whether every piece lies at a multiple of 16 bytes
    may_be_empty: ClassVar[bool] = False  # whether rows are read where nothing is in memory

    @property
    def piece(self) -> int:
        """Values in 16 bytes."""
        return PIECE[self.dtype]

    @abstractmethod
    def of(self, index: b.Expr) -> Self:
        """One of a batch, or of the groups of a convolution."""

    @abstractmethod
    def source(self, first: b.Expr) -> Source:
        """Return what gives, for a row of a part that begins at ``first``, what is read for it.

        Of a row beyond the last one that is the last: its result is not stored.
        """

    @abstractmethod
    def found(self, row: b.Expr, k: b.Expr, width: int) -> tuple[b.Expr, tuple[b.Expr, ...]]:
        """Return whether ``width`` terms exist from ``k`` on, and where; anywhere if they do not.

        All of them exist or none; ``row`` is what ``source`` gave.
        """

    def fetch(self, row: b.Expr, k: b.Expr) -> list[b.Expr]:
        """A piece of float32 values of a row, in registers; beyond the last term it is 0.

        Its first term ``k`` is a multiple of ``piece``.
        """
        if not self.aligned:
            return [b.let(self._value(row, k + offset)) for offset in range(self.piece)]
        exists, place = self.found(row, k, self.piece)
        if self.may_be_empty:
            numbers = ln.zeros(self.piece)
            with b.when(exists):
                ln.load(numbers, (0,), (self.buffer, place), self.piece, self.dtype)
            return [numbers[one] for one in range(self.piece)]
        held = ln.read(self.buffer, place, self.piece, self.dtype)
        return [T.Select(exists, held[one], T.float32(0)) for one in range(self.piece)]

    def copy(self, to: b.Buffer, target_index: Sequence[b.Index], row: b.Expr, k: b.Expr) -> None:
        """Start copying such a piece to words of shared memory, at a multiple of 16 bytes."""
        if self.aligned:
            exists, place = self.found(row, k, self.piece)
            count = T.Select(exists, b.int32(PIECE_BYTES), b.int32(0))
            b.do(b.call("mt_cp_async_16", b.pointer(to, *target_index), self.address(place), count))
            return
        *outer, last = target_index
        with T.unroll(b.int32(WORDS)) as word:
            b.store(to, self._word(row, k, word), (*outer, last + word))

    def address(self, place: tuple[b.Expr, ...]) -> b.Expr:
        """The address of an element."""
        return b.pointer(self.buffer, *place)

    def load(self, place: tuple[b.Expr, ...]) -> b.Expr:
        """An element that exists, as it is stored."""
        return self.buffer[place]

    def _word(self, row: b.Expr, k: b.Expr, word: b.Expr) -> b.Expr:
        """32 bits of a piece, a value at a time."""
        if self.dtype == "float32":
            return T.reinterpret("uint32", self._value(row, k + word))
        low, high = (self._bits(row, k + word * 2 + half) for half in range(2))
        return T.bitwise_or(low, T.shift_left(high, tirx.const(16, "uint32")))

    def _bits(self, row: b.Expr, k: b.Expr) -> b.Expr:
        value = self._value(row, k)
        bits = T.reinterpret("uint16", value) if self.dtype == "float16" else value
        return T.Cast("uint32", bits)

    def _value(self, row: b.Expr, k: b.Expr) -> b.Expr:
        exists, place = self.found(row, k, 1)
        return T.if_then_else(exists, self.load(place), tirx.const(0, b.STORAGE[self.dtype]))


@dataclass(frozen=True, slots=True)
class Matrix(Pieces):
    """A matrix ``[rows, terms]`` whose rows are contiguous, one of a batch or by itself."""

    buffer: b.Buffer  # ``[*batch, rows, terms]``
    rows: b.Expr
    terms: b.Expr
    dtype: str
    aligned: bool
    at: tuple[b.Expr, ...] = ()  # which matrix of the batch it is
    # Buffers that are read in the place of ``buffer`` where a condition holds.
    others: tuple[tuple[b.Expr, b.Buffer], ...] = ()

    @classmethod
    def argument(
        cls, kernel: b.Kernel, name: str, shape: Sequence[b.Expr], dtype: str, *, aligned: bool
    ) -> Matrix:
        """The next parameter of a kernel; of a batch it is the first matrix."""
        *batch, rows, terms = shape
        buffer = kernel.argument(name, shape, b.STORAGE[dtype])
        return cls(buffer, rows, terms, dtype, aligned, (b.integer(0),) * len(batch))

    def of(self, index: b.Expr) -> Matrix:
        """One of a batch."""
        return replace(self, at=(index,))

    def inside(self, row: b.Expr) -> b.Expr:
        """``row``, or the last row in the place of one beyond."""
        return b.index(b.least(row, self.rows - 1))

    def source(self, first: b.Expr) -> Source:
        """Return what gives the row of the matrix for one of a part."""
        return lambda at: self.inside(first + at)

    def found(self, row: b.Expr, k: b.Expr, width: int) -> tuple[b.Expr, tuple[b.Expr, ...]]:
        """Return whether such terms exist, and where; else the last ones."""
        return k < self.terms, (*self.at, row, b.index(b.least(k, self.terms - width)))

    def address(self, place: tuple[b.Expr, ...]) -> b.Expr:
        """The address of an element of the buffer that is read."""
        address = b.pointer(self.buffer, *place)
        for condition, other in self.others:
            arguments = condition, b.pointer(other, *place), address
            address = b.call("mt_either", *arguments, returns="handle")
        return address

    def load(self, place: tuple[b.Expr, ...]) -> b.Expr:
        """An element of the buffer that is read, which exists."""
        value = self.buffer[place]
        for condition, other in self.others:
            value = T.if_then_else(condition, other[place], value)
        return value
