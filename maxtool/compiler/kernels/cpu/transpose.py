"""Transposition of square tiles in registers."""

from __future__ import annotations

from tvm import tirx

from maxtool.compiler.kernels.cpu import builder as b


def transposed(rows: list[b.Expr]) -> list[b.Expr]:
    """Return the columns of a tile of as many vectors as each has elements, a power of two.

    Each round interleaves the upper half with the lower half.
    """
    half = len(rows) // 2
    for _ in range(len(rows).bit_length() - 1):
        pairs = zip(rows[:half], rows[half:], strict=True)
        rows = [part for upper, lower in pairs for part in _interleaved(upper, lower, half)]
    return rows


def _interleaved(upper: b.Expr, lower: b.Expr, half: int) -> list[b.Expr]:
    """The elements of two vectors in turn: those of their first halves, and of their second."""
    return [
        b.let(
            tirx.Shuffle(
                [upper, lower],
                [b.int32(place) for k in range(start, start + half) for place in (k, 2 * half + k)],
            )
        )
        for start in (0, half)
    ]
