"""The join of what blocks leave that shared out the keys of one token."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.attention_scores import HIDDEN, Scores


def combine_splits(
    heads: int, head_dim: int, splits: int, out: str = "float32", sinks: bool = False
) -> b.PrimFunc:
    """Build the join of the shares that ``split_kv_attention`` left.

    Parameters of the kernel: parts[batch, heads, splits, head_dim], sums[batch, heads, splits, 2],
    both float32, with ``sinks`` the score of one more key of each head, whose value is zero, as
    sink[heads], y[batch, 1, heads, head_dim] of type ``out``. Shares whose sum is 0 had no key.
    """
    threads = max(ln.threads_for(head_dim), b.WARP)
    with b.kernel(f"combine_splits_{heads}_{head_dim}_{splits}") as kernel:
        batch = kernel.dim("batch")
        parts = kernel.argument("parts", (batch, heads, splits, head_dim))
        sums = kernel.argument("sums", (batch, heads, splits, 2))
        sink = kernel.argument("sink", (heads,)) if sinks else None
        y = kernel.argument("y", (batch, 1, heads, head_dim), b.STORAGE[out])
        with b.launch([heads, batch], threads) as (head, at, thread):
            weights = b.shared((splits,))
            at_sums = (at, head)
            top = _top(sums, at_sums, thread % b.WARP, splits)
            total = b.warp_reduce(_weigh(sums, at_sums, thread, splits, top, weights), b.add)
            if sink is not None:
                total = b.let(Scores(1.0).with_sink(total, top, sink[head]))
            inverse = b.let(T.float32(1) / total)
            b.barrier()

            def element(i: b.Expr) -> None:
                value = b.cell(T.float32(0))
                with T.serial(splits) as share:
                    weight = b.let(weights[share])
                    with b.when(weight != T.float32(0)):
                        value.add(weight * parts[at, head, share, i])
                b.store(y, b.to_storage(value.value * inverse, out), (at, 0, head, i))

            ln.strided(head_dim, thread, threads, element)
    return kernel.function


def _top(sums: b.Buffer, at: tuple[b.Expr, ...], lane: b.Expr, splits: int) -> b.Expr:
    """The greatest score of all shares, which each warp finds by itself."""
    own = b.cell(T.float32(HIDDEN))

    def take(share: b.Expr) -> None:
        with b.when(sums[(*at, share, 1)] != T.float32(0)):
            own.set(T.max(own.value, sums[(*at, share, 0)]))

    ln.strided(splits, lane, b.WARP, take)
    return b.let(b.warp_reduce(own.value, T.max))


def _weigh(
    sums: b.Buffer,
    at: tuple[b.Expr, ...],
    thread: b.Expr,
    splits: int,
    top: b.Expr,
    weights: b.Buffer,
) -> b.Expr:
    """The sum of powers of a lane's shares; the weight of each goes to shared memory."""
    own = b.cell(T.float32(0))

    def weigh(share: b.Expr) -> None:
        weight = b.cell(T.float32(0))
        with b.when(sums[(*at, share, 1)] != T.float32(0)):
            weight.set(T.exp2(sums[(*at, share, 0)] - top))
            own.add(weight.value * sums[(*at, share, 1)])
        with b.when(thread < b.WARP):
            b.store(weights, weight.value, (share,))

    ln.strided(splits, thread % b.WARP, b.WARP, weigh)
    return own.value
