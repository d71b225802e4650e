"""Causal attention of many queries over a cache, or over the sequence itself."""

from __future__ import annotations

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.attention_scores import Scores
from maxtool.compiler.kernels.cuda.flash import cached_problem
from maxtool.compiler.kernels.cuda.flash_mma import TileLayout, flash_mma
from maxtool.compiler.kernels.cuda.flash_simt import flash_simt, shape_for
from maxtool.compiler.kernels.kernel_options import HeadSizes


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
) -> b.PrimFunc:
    """Build causal attention.

    Parameters of the kernel: q[batch, seq, heads, head_dim], k and v[batch, kv_heads, context,
    head_dim] of ``dtype``, position[1] int32, y like q, but of type ``out``. Query i sees the keys
    0 to position + i, and with a window only the last ``window`` of them; its own position
    included. Where keys have 16 bits and heads fit tensor cores, queries and probabilities are
    rounded to the type of the keys.

    Args:
        shared_memory: Bytes that a block may have.
        heads: Query heads, a multiple of ``kv_heads``.
        kv_heads: Key and value heads.
        head_dim: Elements of a head.
        scale: Factor of the scores, usually ``head_dim ** -0.5``.
        window: Keys a query sees at most.
        softcap: Bound of the scores, which become ``softcap * tanh(score / softcap)``.
        dtype: The type of keys and values.
        out: The type of y.
    """
    sizes = HeadSizes(heads, kv_heads, head_dim, head_dim)
    form = TileLayout(sizes, dtype)
    with b.kernel(f"attention_{heads}_{kv_heads}_{head_dim}") as kernel:
        scores = Scores(scale, window, softcap)
        problem = cached_problem(kernel, sizes, scores, (dtype, out))
        if form.fits(shared_memory):
            flash_mma(problem, form)
        else:
            flash_simt(problem, shape_for(sizes, "float32", shared_memory))
    return kernel.function
