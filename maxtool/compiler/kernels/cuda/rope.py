"""Rotary positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln

# Cosines, sines, and the row of both.
Angle: TypeAlias = tuple[b.Buffer, b.Buffer, b.Expr]


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation of element j and j + dim / 2 of a head, and how it is shared out."""

    head_dim: int  # elements of a head
    dim: int  # how many of them, from the first on, are rotated

    @property
    def half(self) -> int:
        """Pairs of a head."""
        return self.dim // 2

    def width(self, *dtypes: str) -> int:
        """Return how many neighbours are moved at a time, if they have these types."""
        sizes = (self.half, self.head_dim, self.head_dim - self.dim)
        return min(4, *(ln.widest(dtype, *sizes) for dtype in ("float32", *dtypes)))

    def units(self, width: int) -> int:
        """Pieces of work in a head: pairs of vectors that are rotated, vectors that are copied."""
        return (self.half + self.head_dim - self.dim) // width

    def apply(
        self,
        unit: b.Expr,
        width: int,
        source: tuple[b.Buffer, tuple[b.Index, ...]],
        angle: Angle,
        target: tuple[b.Buffer, tuple[b.Index, ...], str],
    ) -> None:
        """Emit one piece of work of a head, with vectors as wide as ``width`` gave.

        The source is a float32 tensor and where in it the head is; the target has its type, too.
        """
        (x, at), (cos, sin, row), (y, to, dtype) = source, angle, target
        rotated = self.half // width

        def rotate() -> None:
            low = b.index(unit * width)
            high = b.index(low + self.half)
            first, second = (ln.read(x, (*at, one), width, "float32") for one in (low, high))
            c, s = (ln.read(table, (row, low), width, "float32") for table in (cos, sin))
            less, more = b.scratch((width,)), b.scratch((width,))
            with T.unroll(b.int32(width)) as i:
                b.store(less, first[i] * c[i] - second[i] * s[i], (i,))
                b.store(more, second[i] * c[i] + first[i] * s[i], (i,))
            ln.write(y, less, (*to, low), width, dtype)
            ln.write(y, more, (*to, high), width, dtype)

        def copy() -> None:
            place = b.index(self.dim + (unit - rotated) * width)
            ln.write(y, ln.read(x, (*at, place), width, "float32"), (*to, place), width, dtype)

        if self.dim == self.head_dim:
            rotate()
        else:
            b.either(unit < rotated, rotate, copy)


def rope(head_dim: int, dim: int) -> b.PrimFunc:
    """Build the rotation of element j and j + dim / 2 by the angle of their position.

    Parameters of the kernel: x[batch, seq, heads, head_dim], cos[context, dim / 2],
    sin[context, dim / 2], position[1] int32 of the first row, y like x. Positions outside the
    tables take their first or last row. Elements from ``dim`` on are copied.
    """
    rotation = Rotation(head_dim, dim)
    width = rotation.width()
    threads = ln.threads_for(rotation.units(width))
    with b.kernel(f"rope_{head_dim}_{dim}") as kernel:
        batch, seq, heads = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("heads")
        context = kernel.dim("context")
        x = kernel.argument("x", (batch, seq, heads, head_dim))
        cos = kernel.argument("cos", (context, rotation.half))
        sin = kernel.argument("sin", (context, rotation.half))
        position = kernel.argument("position", (1,), "int32")
        y = kernel.argument("y", (batch, seq, heads, head_dim))
        with b.launch([batch * seq, heads], threads) as (token, head, thread):
            at, s = b.unravel(token, (batch, seq))
            row = b.index(b.clamped(T.Cast("int64", position[0]) + s, context))
            place = (at, s, head)

            def work(unit: b.Expr) -> None:
                target = (y, place, "float32")
                rotation.apply(unit, width, (x, place), (cos, sin, row), target)

            ln.strided(rotation.units(width), thread, threads, work)
    return kernel.function
