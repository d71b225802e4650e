"""Drawing tokens on a CPU: a task for each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels import sampling
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.ordering import Combine

# Sweeps over a row.
SWEEPS = 32


class Alone:
    """One thread for a row."""

    def each(self, n: b.Index, body: Callable[[b.Expr], None]) -> None:
        """Run ``body(k)`` for every ``k`` below ``n``."""
        with T.serial(b.integer(n)) as k:
            body(k)

    def reduce(self, value: b.Expr, combine: Combine, kind: str = "float32") -> b.Expr:  # noqa: ARG002
        """The value itself."""
        return value

    def barrier(self) -> None:
        """Nobody is waited for."""


def sample() -> Any:  # noqa: ANN401
    """Build the draw; see :class:`maxtool.compiler.kernels.sampling.Arguments`."""
    with b.kernel("sample") as made:
        row = sampling.Arguments(made)
        b.each_row(
            row.rows,
            SWEEPS * row.vocab,
            lambda i: b.store(row.token, row.drawn(i, Alone()), (i, 0), 1),
        )
    return made.function
