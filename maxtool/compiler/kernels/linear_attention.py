"""Linear attention over a state of fixed size: each token decays it, and adds to it."""

from __future__ import annotations

from collections.abc import Callable

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend
from maxtool.compiler.kernels.kept_state import KeptState


def linear_attention(
    backend: Backend,
    key_heads: int,
    heads: int,
    key_dim: int,
    value_dim: int,
    delta: bool,
    by_channel: bool = False,
    slots: bool = False,
) -> b.PrimFunc:
    """Build the scan of :func:`maxtool.graph.ops.linear_attention`, a token after the other.

    Parameters of the kernel: state[rows, heads, key_dim, value_dim], changed in place; query and
    key[batch, seq, key_heads, key_dim], value[batch, seq, heads, value_dim], decay[batch, seq,
    heads], ``by_channel`` of key_dim besides, with ``delta`` beta[batch, seq, heads], those of
    :class:`KeptState`, y like value; all float32 but for the numbers. Columns of the state know
    nothing of each other: each is scanned by itself.
    """
    name = f"linear_attention_{heads}_{key_dim}_{value_dim}{'_delta' if delta else ''}"
    name += "_by_channel" if by_channel else ""
    with b.kernel(f"{name}{'_slots' if slots else ''}") as kernel:
        batch, seq = kernel.dim("batch"), kernel.dim("seq")
        rows = kernel.dim("slots") if slots else batch
        state = kernel.argument("state", (rows, heads, key_dim, value_dim))
        query, key = (
            kernel.argument(name, (batch, seq, key_heads, key_dim)) for name in ("query", "key")
        )
        value = kernel.argument("value", (batch, seq, heads, value_dim))
        channels = (key_dim,) if by_channel else ()
        decay = kernel.argument("decay", (batch, seq, heads, *channels))
        beta = kernel.argument("beta", (batch, seq, heads)) if delta else None
        kept = KeptState(kernel, batch, rows, slots=slots)
        y = kernel.argument("y", (batch, seq, heads, value_dim))

        def columns(i: b.Expr, k: b.Index, width: int) -> None:
            at, head = b.unravel(i, (batch, b.integer(heads)))
            row, own = kept.row(at), b.index(b.quotient(head, heads // key_heads))
            sums, total = b.scratch((key_dim, width)), b.scratch((width,))

            def each(body: Callable[[b.Expr], None]) -> None:
                with T.serial(b.integer(key_dim)) as j:
                    body(j)

            def load(j: b.Expr) -> None:
                kept.load(backend, at, state, (row, head, j, k), sums, (j, 0), width)

            def add(vector: b.Expr) -> None:
                b.store(total, b.load(total, (0,), width) + vector, (0,), width)

            def clear() -> None:
                b.store(total, b.splat(0.0, width), (0,), width)

            each(load)
            with T.serial(seq) as s:
                whole = None if by_channel else b.let(decay[at, s, head])
                clear()

                def fade(j: b.Expr) -> None:
                    factor = decay[at, s, head, j] if whole is None else whole
                    faded = b.load(sums, (j, 0), width) * b.splat(factor, width)
                    b.store(sums, faded, (j, 0), width)
                    if beta is not None:
                        add(b.load(sums, (j, 0), width) * b.splat(key[at, s, own, j], width))

                each(fade)
                new = backend.read(value, (at, s, head, k), "float32", width)
                if beta is not None:
                    new = (new - b.load(total, (0,), width)) * b.splat(beta[at, s, head], width)
                new = b.let(new)
                clear()

                def write(j: b.Expr) -> None:
                    more = new * b.splat(key[at, s, own, j], width)
                    b.store(sums, b.load(sums, (j, 0), width) + more, (j, 0), width)
                    add(b.load(sums, (j, 0), width) * b.splat(query[at, s, own, j], width))

                each(write)
                backend.write(y, b.load(total, (0,), width), (at, s, head, k), "float32", width)

            def keep(j: b.Expr) -> None:
                last = b.load(sums, (j, 0), width)
                backend.write(state, last, (row, head, j, k), "float32", width)

            with b.when(kept.is_inside(row)):
                each(keep)

        # As an expression: accesses of elements are what every target has.
        work = seq * b.integer(4 * key_dim)
        backend.each_vector(batch * heads, b.integer(value_dim), columns, work=work)
    return kernel.function
