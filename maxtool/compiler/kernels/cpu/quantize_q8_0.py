"""Keys and values rounded to eight bits on their way into a cache, as ggml's Q8_0.

The arithmetic is that of ``quantize_row_q8_0_ref`` in ggml-quants.c, bit for bit, but for blocks of
magnitudes below ``LEAST``, whose scales are zero in float16 either way.
"""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.quantized_activations import (
    INFINITY_BITS,
    LEAST,
    SIGN_MASK,
    STEPS,
)
from maxtool.compiler.quantized_layout import GROUP
from maxtool.quantization import QuantizationEncoding

BLOCK = QuantizationEncoding.Q8_0.elements_per_block
# The bits of the float32 just below one half: adding it and truncating rounds halves away from
# zero exactly, where adding one half itself would round 0.49999997 up.
BELOW_HALF_BITS = 0x3EFFFFFF
SIGN_BIT = -(1 << 31)


def quantize_q8_0(
    tile: RegisterTile, heads: int, head_dim: int, packed: bool = False
) -> b.PrimFunc:
    """Build the rounding of heads, each of which is a whole number of blocks.

    Parameters of the kernel: x[batch, seq, heads, head_dim], quants like x int8, or if ``packed``
    four neighbours as an int32, scales[batch, seq, heads, head_dim / 32] float16: NaN for a block
    with a NaN or an infinity.
    """
    blocks = head_dim // BLOCK
    with b.kernel(f"quantize_q8_0_{heads}_{head_dim}") as kernel:
        sizes = kernel.dim("batch"), kernel.dim("seq"), heads
        x = kernel.argument("x", (*sizes, head_dim))
        width, dtype = (head_dim // GROUP, "int32") if packed else (head_dim, "int8")
        quants = kernel.argument("quants", (*sizes, width), dtype)
        scales = kernel.argument("scales", (*sizes, blocks), "float16")

        def block(i: b.Expr) -> None:
            *row, part = b.unravel(i, (*sizes, blocks))
            places = [(*row, b.index(part * BLOCK + at)) for at in range(0, BLOCK, tile.width)]
            rounded = _quantize(tile.width, x, places, scales, (*row, part))
            for (*_, first), value in zip(places, rounded, strict=True):
                _store(quants, value, (*row, first), tile.width)

        b.each_row(sizes[0] * sizes[1] * (heads * blocks), BLOCK, block)
    return kernel.function


def _quantize(
    width: int,
    x: b.Buffer,
    places: list[tuple[b.Expr, ...]],
    scales: b.Buffer,
    place: tuple[b.Expr, ...],
) -> list[b.Expr]:
    """The quants of a block, of which ``places`` are the vectors; its scale is stored."""
    values = [b.let(b.load(x, at, width)) for at in places]
    top = _largest(values, width)
    is_finite = b.let(top < b.int32(INFINITY_BITS))
    step = b.let(T.reinterpret("float32", top) / T.float32(STEPS))
    kept = T.Select(is_finite, step, T.float32(float("nan")))
    b.store(scales, T.Cast("float16", kept), place)
    inverse = b.let(T.float32(1) / T.max(step, T.float32(LEAST)))
    nothing = b.splat(0.0, width)
    finite = [T.Select(b.splat(is_finite, width), value, nothing) for value in values]
    return [_rounded(b.let(value * b.splat(inverse, width)), width) for value in finite]


def _store(quants: b.Buffer, value: b.Expr, place: tuple[b.Expr, ...], width: int) -> None:
    """Store quants, or as many int32 as hold them."""
    narrow = T.Cast(b.vector_type("int8", width), value)
    if str(quants.dtype) == "int8":
        b.store(quants, narrow, place, width)
        return
    *outer, first = place
    words = T.reinterpret(b.vector_type("int32", width // GROUP), b.let(narrow))
    b.store(quants, words, (*outer, b.index(b.quotient(first, GROUP))), width // GROUP)


def _largest(values: list[b.Expr], width: int) -> b.Expr:
    """Bits of the largest magnitude: of integers, NaN is the largest and no comparison odd."""
    mask = b.splat(b.int32(SIGN_MASK), width)
    largest = b.splat(b.int32(0), width)
    for value in values:
        largest = T.max(largest, T.reinterpret(b.vector_type("int32", width), value) & mask)
    return b.let(b.fold(largest, width, T.max))


def _rounded(value: b.Expr, width: int) -> b.Expr:
    """The nearest integers, halves away from zero, as int32."""
    integers = b.vector_type("int32", width)
    sign = T.reinterpret(integers, value) & b.splat(b.int32(SIGN_BIT), width)
    half = T.reinterpret(value.ty, sign | b.splat(b.int32(BELOW_HALF_BITS), width))
    return T.Cast(integers, value + half)
