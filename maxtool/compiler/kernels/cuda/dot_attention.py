"""Attention of any query to any key, with a mask or without."""

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


def dot_attention(
    shared_memory: int,
    dtype: str,
    heads: HeadSizes,
    mask: Mask | None,
    causal: bool,
    scale: float,
    out: str | None = None,
) -> b.PrimFunc:
    """Build ``softmax(q @ k.T * scale + mask) @ v`` with the online softmax.

    Parameters of the kernel: q[batch, heads, n, d], k[batch, kv_heads, m, d],
    v[batch, kv_heads, m, dv], mask[1 or batch, 1 or heads, 1 or n, 1 or m] if there is one,
    y[batch, heads, n, dv]; all but a mask of bool or float32 are of ``dtype``, but y of ``out``, if
    that is said. A query that sees no key gets zeros. Where tensor cores take 16-bit types,
    probabilities are rounded to them.
    """
    with b.kernel(f"dot_attention_{dtype}") as kernel:
        problem = _problem(kernel, (dtype, out or dtype), heads, mask, causal, scale)
        form = TileLayout(heads, dtype)
        if form.fits(shared_memory):
            flash_mma(problem, form)
        else:
            flash_simt(problem, shape_for(heads, e.compute_type(dtype), shared_memory))
    return kernel.function


def _problem(
    kernel: b.Kernel,
    types: tuple[str, str],
    heads: HeadSizes,
    mask: Mask | None,
    causal: bool,
    scale: float,
) -> AttentionOperands:
    """The arguments, and what they mean: the last query and the last key belong together."""
    dtype, out = types
    batch, n, m = kernel.dim("batch"), kernel.dim("n"), kernel.dim("m")
    q = kernel.argument("q", (batch, heads.queries, n, heads.key_dim), e.storage_type(dtype))
    k = kernel.argument("k", (batch, heads.keys, m, heads.key_dim), e.storage_type(dtype))
    v = kernel.argument("v", (batch, heads.keys, m, heads.value_dim), e.storage_type(dtype))
    masking = None
    if mask is not None:
        masking = _masking(kernel, mask, (batch, heads.queries, n, m), e.compute_type(dtype))
    y = kernel.argument("y", (batch, heads.queries, n, heads.value_dim), e.storage_type(out))
    added = mask is not None and mask.dtype != "bool"
    scores = Scores(scale, added=added, kind=e.compute_type(dtype))
    every, offset = (dtype, *types), m - n if causal else None
    return AttentionOperands(heads, batch, n, m, q, k, v, y, every, True, offset, scores, masking)


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
        return score + e.read_as(buffer, index, mask.dtype, compute_dtype)

    return masked
