"""Attention of any query to any key, in float32: tiles of queries, and blocks of keys.

A task is a tile of queries of one head. It takes them by groups as high as the register tile:
scores with a block of keys, their running maximum and sum (the online softmax), then the block's
values. Blocks that a mask hides from all queries alike, as it hides padding, are left out.
"""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e
from maxtool.compiler.kernels.cpu.block_attention_task import (
    KEYS,
    ROWS,
    BlockAttentionKernel,
    BlockAttentionTask,
    MaskArgument,
)
from maxtool.compiler.kernels.kernel_options import HeadSizes, Mask

LARGEST_HEAD = 512  # elements of a head: a task keeps its queries and a block of keys on the stack


def fits_blocks(dtype: str, *dims: int) -> bool:
    """Return whether there is a kernel for heads of elements of ``dtype``, and of such lengths."""
    return e.compute_type(dtype) == "float32" and max(dims) <= LARGEST_HEAD


def block_attention(
    tile: RegisterTile,
    dtype: str,
    heads: HeadSizes,
    mask: Mask | None,
    causal: bool,
    scale: float,
    out: str,
    by_token: bool,
) -> b.PrimFunc:
    """Build ``softmax(q @ k.T * scale + mask) @ v`` for types that are computed in float32.

    Parameters of the kernel: q[batch, heads, n, d], k[batch, kv_heads, m, d],
    v[batch, kv_heads, m, dv], mask[1 or batch, 1 or heads, 1 or n, 1 or m] if there is one,
    y[batch, heads, n, dv]; all but a mask of bool are of ``dtype``, y of ``out``. With ``by_token``
    the second and third dimension of all but the mask are the other way round. A query that sees no
    key gets zeros.
    """
    with b.kernel(f"block_attention_{dtype}{'_by_token' if by_token else ''}") as kernel:
        batch, n, m = kernel.dim("batch"), kernel.dim("n"), kernel.dim("m")

        def argument(name: str, count: int, length: b.Expr, dim: int, kind: str) -> b.Buffer:
            middle = (length, count) if by_token else (count, length)
            return kernel.argument(name, (batch, *middle, dim), e.storage_type(kind))

        q = argument("q", heads.queries, n, heads.key_dim, dtype)
        k = argument("k", heads.keys, m, heads.key_dim, dtype)
        v = argument("v", heads.keys, m, heads.value_dim, dtype)
        hidden = None
        if mask is not None:
            full = (batch, heads.queries, n, m)
            sizes = [1 if single else size for single, size in zip(mask.single, full, strict=True)]
            buffer = kernel.argument("mask", sizes, e.storage_type(mask.dtype))
            hidden = MaskArgument(mask, buffer)
        y = argument("y", heads.queries, n, heads.value_dim, out)
        options = (tile, dtype, heads, causal, scale, out, by_token)
        _emit(BlockAttentionKernel(*options, batch, n, m, q, k, v, hidden, y))
    return kernel.function


def _emit(kernel: BlockAttentionKernel) -> None:
    """All tiles of queries of all heads, on all threads."""
    tiles = T.Bind(b.ceildiv(kernel.queries, ROWS))
    with T.parallel(kernel.batch * kernel.heads.queries * tiles) as index:
        line, part = b.index(b.quotient(index, tiles)), b.index(b.remainder(index, tiles))
        at = b.index(b.quotient(line, kernel.heads.queries))
        head = b.index(b.remainder(line, kernel.heads.queries))
        _task(kernel, at, head, b.index(part * ROWS)).run()


def _task(
    kernel: BlockAttentionKernel, at: b.Expr, head: b.Expr, first: b.Expr
) -> BlockAttentionTask:
    """Take the memory of a task."""
    sizes, width = kernel.heads, kernel.tile.width
    return BlockAttentionTask(
        kernel=kernel,
        at=at,
        head=head,
        shared=b.index(b.quotient(head, sizes.queries // sizes.keys)),
        first=first,
        rows=b.index(b.least(kernel.queries - first, ROWS)),
        queries=b.scratch((ROWS, sizes.key_dim)),
        keys=b.scratch((sizes.key_dim, KEYS)),
        hidden=b.scratch((KEYS,)),
        scores=b.scratch((kernel.tile.mr, KEYS)),
        highest=b.scratch((kernel.tile.mr,)),
        origin=b.scratch((kernel.tile.mr,)),
        shrink=b.scratch((kernel.tile.mr,)),
        top=b.scratch((ROWS,)),
        total=b.scratch((ROWS, width)),
        out=b.scratch((ROWS, sizes.value_dim)),
    )
