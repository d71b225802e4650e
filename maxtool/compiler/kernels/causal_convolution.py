"""Convolution over time of each channel by itself, which keeps its last inputs."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend
from maxtool.compiler.kernels.kept_state import KeptState, share_of


def causal_convolution(
    backend: Backend, taps: int, channels: int, slots: bool = False
) -> b.PrimFunc:
    """Build ``y[t] = sum(weight[j] * x[t - n + j] for j)``, added up in that order; n is taps - 1.

    Parameters of the kernel: state[rows, n, channels], the inputs before x, changed in place;
    x[batch, seq, channels], weight[taps, channels], those of :class:`KeptState`, y[batch, seq,
    channels]; all float32 but for the numbers.
    """
    with b.kernel(f"causal_convolution_{taps}_{channels}{'_slots' if slots else ''}") as kernel:
        batch, seq = kernel.dim("batch"), kernel.dim("seq")
        rows = kernel.dim("slots") if slots else batch
        state = kernel.argument("state", (rows, taps - 1, channels))
        x = kernel.argument("x", (batch, seq, channels))
        weight = kernel.argument("weight", (taps, channels))
        kept = KeptState(kernel, batch, rows, slots=slots)
        y = kernel.argument("y", (batch, seq, channels))
        share = share_of(channels)

        def vector(i: b.Expr, k: b.Index, width: int) -> None:
            at, part = b.unravel(i, (batch, b.integer(channels // share)))
            first, row = b.index(part * share + k), kept.row(at)
            window, factors = b.scratch((taps, width)), b.scratch((taps, width))
            for j in range(taps):
                factor = backend.read(weight, (j, first), "float32", width)
                b.store(factors, factor, (j, 0), width)

            def shift() -> None:
                for j in range(taps - 1):
                    b.store(window, b.load(window, (j + 1, 0), width), (j, 0), width)

            for j in range(taps - 1):
                kept.load(backend, at, state, (row, j, first), window, (j + 1, 0), width)
            with T.serial(seq) as s:
                shift()
                new = backend.read(x, (at, s, first), "float32", width)
                b.store(window, new, (taps - 1, 0), width)
                products = (
                    b.load(window, (j, 0), width) * b.load(factors, (j, 0), width)
                    for j in range(taps)
                )
                total = next(products)
                for product in products:
                    total = total + product
                backend.write(y, total, (at, s, first), "float32", width)
            with b.when(kept.is_inside(row)):
                for j in range(taps - 1):
                    last = b.load(window, (j + 1, 0), width)
                    backend.write(state, last, (row, j, first), "float32", width)

        work = seq * tirx.IntImm("int64", taps)
        # As an expression: accesses of elements are what every target has.
        backend.each_vector(batch * (channels // share), b.integer(share), vector, work=work)
    return kernel.function
