"""Selective scan over a state of fixed size, of which each channel has a column of its own."""

from __future__ import annotations

from collections.abc import Callable

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend
from maxtool.compiler.kernels.kept_state import KeptState, share_of

WORK = 24  # operations for a number of the state, most of them for its exponential


def selective_scan(
    backend: Backend, state_dim: int, channels: int, slots: bool = False
) -> b.PrimFunc:
    """Build the scan of :func:`maxtool.graph.ops.selective_scan`, a token after the other.

    Parameters of the kernel: state[rows, state_dim, channels], changed in place; query and
    key[batch, seq, state_dim], value and step[batch, seq, channels], rate[state_dim, channels],
    those of :class:`KeptState`, y like value; all float32 but for the numbers. Channels know
    nothing of each other: each is scanned by itself.
    """
    with b.kernel(f"selective_scan_{state_dim}_{channels}{'_slots' if slots else ''}") as kernel:
        batch, seq = kernel.dim("batch"), kernel.dim("seq")
        rows = kernel.dim("slots") if slots else batch
        state = kernel.argument("state", (rows, state_dim, channels))
        query, key = (kernel.argument(name, (batch, seq, state_dim)) for name in ("query", "key"))
        value, step = (kernel.argument(name, (batch, seq, channels)) for name in ("value", "step"))
        rate = kernel.argument("rate", (state_dim, channels))
        kept = KeptState(kernel, batch, rows, slots=slots)
        y = kernel.argument("y", (batch, seq, channels))
        share = share_of(channels)

        def columns(i: b.Expr, k: b.Index, width: int) -> None:
            at, part = b.unravel(i, (batch, b.integer(channels // share)))
            first, row = b.index(part * share + k), kept.row(at)
            sums, total = b.scratch((state_dim, width)), b.scratch((width,))

            def each(body: Callable[[b.Expr], None]) -> None:
                with T.serial(b.integer(state_dim)) as j:
                    body(j)

            def load(j: b.Expr) -> None:
                kept.load(backend, at, state, (row, j, first), sums, (j, 0), width)

            each(load)
            with T.serial(seq) as s:
                moved = b.let(backend.read(step, (at, s, first), "float32", width))
                new = b.let(moved * backend.read(value, (at, s, first), "float32", width))
                b.store(total, b.splat(0.0, width), (0,), width)

                def scan(j: b.Expr) -> None:
                    fast = backend.read(rate, (j, first), "float32", width)
                    faded = backend.exp(moved * fast, "float32", width) * b.load(
                        sums, (j, 0), width
                    )
                    held = b.let(faded + new * b.splat(key[at, s, j], width))
                    b.store(sums, held, (j, 0), width)
                    read = b.load(total, (0,), width) + held * b.splat(query[at, s, j], width)
                    b.store(total, read, (0,), width)

                each(scan)
                backend.write(y, b.load(total, (0,), width), (at, s, first), "float32", width)

            def keep(j: b.Expr) -> None:
                backend.write(state, b.load(sums, (j, 0), width), (row, j, first), "float32", width)

            with b.when(kept.is_inside(row)):
                each(keep)

        # As an expression: accesses of elements are what every target has.
        work = seq * b.integer(WORK * state_dim)
        backend.each_vector(batch * (channels // share), b.integer(share), columns, work=work)
    return kernel.function
