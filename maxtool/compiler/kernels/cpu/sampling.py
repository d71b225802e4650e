"""Drawing tokens on a CPU: a task for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm.tirx.script.builder import ir as T

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

    def stream(
        self,
        n: b.Index,
        kinds: Sequence[str],
        load: Callable[[b.Expr], Sequence[b.Expr]],
        body: Callable[..., None],
    ) -> None:
        """Run ``body(k, *load(k))`` for every ``k`` below ``n``."""

        def take(k: b.Expr) -> None:
            loaded = zip(load(k), kinds, strict=True)
            body(k, *[b.let(one) for one, kind in loaded])

        self.each(n, take)

    def reduce(self, value: b.Expr, combine: Combine, kind: str = "float32") -> b.Expr:  # noqa: ARG002
        """The value itself."""
        return value

    def barrier(self) -> None:
        """Nobody is waited for."""


def sample() -> b.PrimFunc:
    """Build the draw; see :class:`maxtool.compiler.kernels.sampling.Arguments`."""
    with b.kernel("sample") as made:
        row = sampling.Arguments(made)
        b.each_row(
            row.rows,
            SWEEPS * row.vocab,
            lambda i: b.store(row.token, row.drawn(i, Alone()), (i, 0)),
        )
    return made.function
