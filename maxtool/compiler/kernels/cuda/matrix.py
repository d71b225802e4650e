"""Matrices in global memory as products read them: sixteen bytes of a row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln

# Bytes that one thread moves at a time: the widest load there is.
PIECE_BYTES = 16
WORDS = PIECE_BYTES // 4

# Values of a type in such a piece.
PIECE = {"float32": 4, "float16": 8, "bfloat16": 8}

MMA = {"float16": "mt_mma_f16", "bfloat16": "mt_mma_bf16"}


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix ``[rows, terms]`` whose rows are contiguous, one of a batch or by itself."""

    buffer: b.Buffer  # ``[*batch, rows, terms]``
    rows: b.Expr  # how many rows it has; not 0 where it is read
    terms: b.Expr  # how long they are; not 0 where it is read either
    dtype: str  # float32, float16 or bfloat16 (passed as uint16 bits)
    aligned: bool  # whether every row begins at a multiple of 16 bytes
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

    @property
    def piece(self) -> int:
        """Values in 16 bytes."""
        return PIECE[self.dtype]

    def inside(self, row: b.Expr) -> b.Expr:
        """``row``, or the last row in the place of one beyond: its result is not stored."""
        return b.index(b.least(row, self.rows - 1))

    def place(self, row: b.Expr, k: b.Expr) -> tuple[b.Expr, ...]:
        """The indices of an element."""
        return (*self.at, row, k)

    def fetch(self, row: b.Expr, k: b.Expr) -> list[b.Expr]:
        """A piece of float32 values of a row, in registers; beyond the last term it is 0.

        There is such a row; its first term ``k`` is a multiple of ``piece``.
        """
        if not self.aligned:
            return [b.let(self._value(row, k + offset)) for offset in range(self.piece)]
        start = b.index(b.least(k, self.terms - self.piece))
        held = ln.read(self.buffer, self.place(row, start), self.piece, self.dtype)
        return [T.Select(k < self.terms, held[one], T.float32(0)) for one in range(self.piece)]

    def copy(self, to: b.Buffer, target_index: Sequence[b.Index], row: b.Expr, k: b.Expr) -> None:
        """Start copying such a piece to words of shared memory, at a multiple of 16 bytes."""
        if self.aligned:
            count = T.Select(k < self.terms, b.int32(PIECE_BYTES), b.int32(0))
            source = self._address(row, b.least(k, self.terms - self.piece))
            b.do(b.call("mt_cp_async_16", b.pointer(to, *target_index), source, count))
            return
        *outer, last = target_index
        with T.unroll(b.int32(WORDS)) as word:
            b.store(to, self._word(row, k, word), (*outer, last + word))

    def _address(self, row: b.Expr, k: b.Expr) -> b.Expr:
        offsets = self.place(row, k)
        address = b.pointer(self.buffer, *offsets)
        for condition, other in self.others:
            arguments = condition, b.pointer(other, *offsets), address
            address = b.call("mt_either", *arguments, returns="handle")
        return address

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
        offsets, zero = self.place(row, k), tirx.const(0, b.STORAGE[self.dtype])
        value = self.buffer[offsets]
        for condition, other in self.others:
            value = T.if_then_else(condition, other[offsets], value)
        return T.if_then_else(k < self.terms, value, zero)
