"""Convolution as a product of output pixels with filters, on the tiles of any product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda.image_matrix import ImageMatrix
from maxtool.compiler.kernels.cuda.linear import (
    Product,
    Tile,
    first_full,
    has_large_tiles,
    tiles_for,
)
from maxtool.compiler.kernels.cuda.matrix import Matrix
from maxtool.compiler.kernels.cuda.phased_output import phased
from maxtool.compiler.kernels.cuda.product_output import Output, declared
from maxtool.compiler.kernels.image_windows import image_dims
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, Phases, Window

UNALIGNED_BLOCKS = 2  # of a multiprocessor, where the pieces of an image are not aligned


def implicit_gemm(
    shared_memory: int,
    window: Window,
    weight_dtype: str,
    *,
    grouped: bool,
    aligned: bool,
    fours: bool,
    wide: bool,
    after: ChainEpilogue,
    phases: Phases | None = None,
) -> b.PrimFunc:
    """Build the convolution, and what is done to its result.

    Parameters of the kernel: x[batch, sizes..., channels] and w[groups or phases, features of a
    group, places of the window * channels of a group] of one type; what ``after`` reads, each
    [features] or [output pixels, features]; y[batch, output sizes..., features]. Sizes are less
    than 2**31.
    """
    spatial = len(window.size)
    with b.kernel("_".join(("convolution", *(step.op for step in after.steps)))) as kernel:
        batch, sizes = kernel.dim("batch"), image_dims(kernel, spatial)
        outputs = image_dims(kernel, spatial, "o")
        channels, features = kernel.dim("channels"), kernel.dim("features")
        groups, n, k = kernel.dim("groups"), kernel.dim("n"), kernel.dim("k")
        stored = b.STORAGE[weight_dtype]
        images = kernel.argument("x", (batch, *sizes, channels), stored)
        shape = groups, n, k
        w = Matrix.argument(kernel, "w", shape, weight_dtype, aligned=aligned)
        operands = declared(kernel, (kernel.dim("pixels"), features), after)
        y = kernel.argument("y", (batch, *outputs, features), b.STORAGE[after.out])
        made = _sizes(outputs, phases)
        rows = prod(made, start=batch)
        x = ImageMatrix(
            as_rows(images, prod(sizes, start=batch)),
            rows,
            k,
            weight_dtype,
            aligned,
            window,
            sizes,
            made,
            before=b.integer(0) if grouped else None,
        )
        output = Output(
            as_rows(y, prod(outputs, start=batch)),
            rows,
            n,
            operands,
            after.steps,
            dtype=after.out,
            fours=fours,
            before=x.before,
        )
        if phases is not None:
            output = phased(output, phases, made, outputs)
        product = Product(x, w, output, groups if grouped or phases else None)
        # Where a row of a phase lies takes registers, which large tiles have not.
        first_full(product, _tiles(product, wide and phases is None, shared_memory))
    return kernel.function


def _sizes(outputs: Sequence[b.Expr], phases: Phases | None) -> list[b.Expr]:
    """Sizes of the result, or of each of its phases: those of the one that has most."""
    if phases is None:
        return list(outputs)
    axes = zip(outputs, phases.before, phases.stride, strict=True)
    return [b.ceildiv(size + before, step) for size, before, step in axes]


def _tiles(product: Product, wide: bool, shared_memory: int) -> Sequence[Tile]:
    """The tiles for a convolution, largest first."""
    tiles = tiles_for(product.w.dtype, shared_memory)
    if not product.x.aligned:
        # Each value is looked for by itself, in more registers than four blocks have.
        return [replace(tiles[-1], min_blocks_per_sm=UNALIGNED_BLOCKS)]
    return tiles[0 if has_large_tiles(product.w, product.output, wide=wide) else -1 :]


def as_rows(buffer: b.Buffer, rows: b.Expr) -> b.Buffer:
    """The same memory with a row for each pixel."""
    shape = [rows, buffer.shape[-1]]
    return T.decl_buffer(shape, str(buffer.dtype), data=buffer.data, layout=None)
