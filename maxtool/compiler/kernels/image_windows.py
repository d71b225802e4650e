"""Images whose channels come last: which input pixels an output pixel looks at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.kernel_options import Window


@dataclass(frozen=True, slots=True)
class InputImage:
    """The input while a kernel is built, and the output pixel that is computed."""

    window: Window
    sizes: tuple[b.Expr, b.Expr]
    pixel: Sequence[b.Expr]

    def each(self, body: Callable[[Any, Any, Any, Any], None], padding: bool = False) -> None:
        """Run ``body(row, column, y, x)`` for each place of the window that is in the input.

        Places in the padding count too if ``padding`` is True.
        """
        height, width = self.window.size
        with T.serial(b.integer(height)) as r, T.serial(b.integer(width)) as s:
            places = [self._place(axis, at) for axis, at in enumerate((r, s))]
            with b.when(tirx.all(*(self._inside(i, at, padding) for i, at in enumerate(places)))):
                body(r, s, *places)

    def _place(self, axis: int, at: b.Expr) -> b.Expr:
        window = self.window
        start = self.pixel[axis] * window.stride[axis] - window.before[axis]
        return b.index(start + at * window.dilation[axis])

    def _inside(self, axis: int, at: b.Expr, padding: bool) -> b.Expr:
        size = self.sizes[axis]
        if padding:
            return at < size + self.window.after[axis]
        return tirx.all(at >= 0, at < size)
