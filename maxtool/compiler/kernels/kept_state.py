"""The rows of a state of fixed size, and when what they hold counts."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend

SHARE = 256  # channels of a text that a thread of a CPU works on


def share_of(channels: int) -> int:
    """Return how many channels a thread of a CPU works on, of which all are a multiple."""
    return next(size for size in range(min(SHARE, channels), 0, -1) if not channels % size)


class KeptState:
    """The parameters of a kernel that say which row of a state belongs to each text.

    They are position[1] int32, where the first of the new inputs stands in its text; with
    ``slots`` position[batch] and slot[batch] int32, the row of each text. At position 0 a text
    begins: what the state holds is of another one then. What would be written outside is dropped.
    """

    def __init__(self, kernel: b.Kernel, batch: b.Expr, rows: b.Expr, *, slots: bool) -> None:
        self._rows = rows
        self._position = kernel.argument("position", (batch if slots else 1,), "int32")
        self._slot = kernel.argument("slot", (batch,), "int32") if slots else None

    def row(self, at: b.Expr) -> b.Expr:
        """The row of the state of a text."""
        return at if self._slot is None else b.index(T.Cast("int64", self._slot[at]))

    def is_inside(self, row: b.Expr) -> b.Expr:
        """Return whether there is such a row."""
        return tirx.all(row >= b.integer(0), row < self._rows)

    def load(
        self,
        backend: Backend,
        at: b.Expr,
        state: b.Buffer,
        index: b.Indices,
        into: b.Buffer,
        place: b.Indices,
        width: int,
    ) -> None:
        """Load neighbours of a row of the state; zeros where the text begins."""
        position = self._position[0 if self._slot is None else at]

        def held() -> None:
            b.store(into, backend.read(state, index, "float32", width), place, width)

        def nothing() -> None:
            b.store(into, b.splat(0.0, width), place, width)

        b.either(tirx.all(position != 0, self.is_inside(index[0])), held, nothing)
