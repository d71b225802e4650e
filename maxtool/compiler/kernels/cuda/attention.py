"""Attention of many queries: causal over a cache, or of any query to any key."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import elements as e
from maxtool.compiler.kernels.cuda.attention_scores import HIDDEN, Scores
from maxtool.compiler.kernels.cuda.flash import AttentionOperands, Masking
from maxtool.compiler.kernels.cuda.flash_mma import TileLayout, flash_mma
from maxtool.compiler.kernels.cuda.flash_simt import flash_simt, shape_for
from maxtool.compiler.kernels.kernel_options import HeadSizes, Mask


def attention(
    shared_memory: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    scale: float,
    window: int | None,
    softcap: float | None,
    dtype: str,
    out: str = "float32",
    causal: bool = True,
    chunked: bool = False,
    sinks: bool = False,
) -> b.PrimFunc:
    """Build attention over a cache.

    Parameters of the kernel: q[batch, seq, heads, head_dim], k and v[batch, kv_heads, context,
    head_dim] of ``dtype``, position[1] int32, with ``sinks`` the score of one more key of each
    head, whose value is zero, as sink[heads], y like q, but of type ``out``. Query i sees the keys
    0 to position + i, and with a window only the last ``window`` of them, or those of its own chunk
    of as many; its own position included. One that is not ``causal`` sees those of all queries,
    too. Where keys have 16 bits and heads fit tensor cores, queries and probabilities are rounded
    to the type of the keys.
    """
    with b.kernel(f"attention_{heads}_{kv_heads}_{head_dim}") as kernel:
        batch, seq, context = kernel.dim("batch"), kernel.dim("seq"), kernel.dim("context")
        rows, cached = (batch, seq, heads, head_dim), (batch, kv_heads, context, head_dim)
        q = kernel.argument("q", rows)
        k, v = (kernel.argument(name, cached, b.STORAGE[dtype]) for name in ("k", "v"))
        position = kernel.argument("position", (1,), "int32")
        sink = kernel.argument("sink", (heads,)) if sinks else None
        y = kernel.argument("y", rows, b.STORAGE[out])
        sizes = HeadSizes(heads, kv_heads, head_dim, head_dim)
        types, offset = ("float32", dtype, out), T.Cast("int64", position[0])
        scores = Scores(scale, window, softcap, causal=causal, chunked=chunked)
        operands = sizes, batch, seq, context, q, k, v, y, types, False, offset, scores
        _flash(AttentionOperands(*operands, sinks=sink), shared_memory)
    return kernel.function


def dot_attention(
    shared_memory: int,
    dtype: str,
    heads: HeadSizes,
    mask: Mask | None,
    causal: bool,
    scale: float,
    out: str,
) -> b.PrimFunc:
    """Build ``softmax(q @ k.T * scale + mask) @ v`` with the online softmax.

    Parameters of the kernel: q[batch, heads, n, d], k[batch, kv_heads, m, d],
    v[batch, kv_heads, m, dv], mask[1 or batch, 1 or heads, 1 or n, 1 or m] if there is one,
    y[batch, heads, n, dv]; all but a mask of bool or float32 are of ``dtype``, but y of ``out``. A
    query that sees no key gets zeros. Where tensor cores take 16-bit types, probabilities are
    rounded to them.
    """
    stored, compute_dtype = e.storage_type(dtype), e.compute_type(dtype)
    with b.kernel(f"dot_attention_{dtype}") as kernel:
        batch, n, m = kernel.dim("batch"), kernel.dim("n"), kernel.dim("m")
        q = kernel.argument("q", (batch, heads.queries, n, heads.key_dim), stored)
        k = kernel.argument("k", (batch, heads.keys, m, heads.key_dim), stored)
        v = kernel.argument("v", (batch, heads.keys, m, heads.value_dim), stored)
        masking = None
        if mask is not None:
            masking = _masking(kernel, mask, (batch, heads.queries, n, m), compute_dtype)
        y = kernel.argument("y", (batch, heads.queries, n, heads.value_dim), e.storage_type(out))
        added = mask is not None and mask.dtype != "bool"
        scores = Scores(scale, added=added, kind=compute_dtype)
        # The last query and the last key belong together.
        types, offset = (dtype, dtype, out), m - n if causal else None
        operands = heads, batch, n, m, q, k, v, y, types, True, offset, scores, masking
        _flash(AttentionOperands(*operands), shared_memory)
    return kernel.function


def _flash(problem: AttentionOperands, shared_memory: int) -> None:
    """Emit attention in tiles, on tensor cores where they take it."""
    form = TileLayout(problem.heads, problem.types[1])
    if form.fits(shared_memory):
        flash_mma(problem, form)
    else:
        flash_simt(problem, shape_for(problem.heads, problem.scores.kind, shared_memory))


def _masking(
    kernel: b.Kernel, mask: Mask, sizes: tuple[b.Index, ...], compute_dtype: str
) -> Masking:
    """The argument of the mask, and what it does to a score."""
    shape = [1 if is_single else size for is_single, size in zip(mask.single, sizes, strict=True)]
    buffer = kernel.argument("mask", shape, e.storage_type(mask.dtype))

    def masked(score: b.Expr, *where: b.Expr) -> b.Expr:
        index = [b.integer(0) if one else at for one, at in zip(mask.single, where, strict=True)]
        if mask.dtype == "bool":
            return T.Select(buffer[tuple(index)], score, tirx.const(HIDDEN, compute_dtype))
        return score + e.converted(e.read(buffer, index, mask.dtype), mask.dtype, compute_dtype)

    return masked
