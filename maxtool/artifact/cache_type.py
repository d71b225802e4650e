"""The type of keys and values in a decoder's cache, and how they lie on each kind of target."""

from __future__ import annotations

import sys

from maxtool.architectures import CacheLayout, Decoder, EncoderDecoder
from maxtool.architectures.linear_biases import EXTRA
from maxtool.artifact.request import CacheType, Request
from maxtool.compiler.kernels.cuda.flash_mma import TileLayout
from maxtool.compiler.kernels.kernel_options import HeadSizes
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.errors import CompilationFailed, UsageError
from maxtool.quantization import QuantizationEncoding

# Instruction sets with a conversion between float16 and float32: without one it is a call for each
# element.
CONVERTING = frozenset({"f16c", "neon"})
BLOCKS = QuantizationEncoding.Q8_0
"""What a cache may be in, beside the types of floats."""


def check_request(request: Request) -> None:
    """Refuse blocks that no cache is in, or that no comparison could allow for."""
    asked = request.kv_dtype
    if asked is None or isinstance(asked, DType):
        return
    if asked is not BLOCKS:
        raise UsageError(f"--kv-dtype {asked.name}: the only blocks of caches are {BLOCKS.name}")
    if request.check and request.against == "transformers":
        what = "--check transformers cannot tell the rounding of --kv-dtype from a wrong reading"
        hint = "check the source without --kv-dtype first, then compile with --check"
        raise UsageError(what, hint=hint)


def cache_layout(request: Request, dtype: DType, target: Target, *, is_wide: bool) -> CacheLayout:
    """The cache of a decoder whose matrices are of ``dtype`` where they are not quantized.

    ``is_wide`` is whether all are stored as float32.

    Raises:
        UsageError: If a GPU is to have another type in the cache than in the matrices, which its
            kernels multiply each other with.
    """
    asked = request.kv_dtype
    if target.kind == "cpu":
        chosen = asked or _usual(target.processor.features, is_wide=is_wide)
        stored = chosen if isinstance(chosen, DType) else DType.int8
        return CacheLayout(stored, slides=True, slots=request.batch)
    if asked not in (None, dtype):
        so = f", or store the matrices so too: --dtype {asked.name}"
        raise UsageError(
            f"--kv-dtype {asked.name}: on GPUs the cache is {dtype.value}, as the matrices are",
            hint=f"leave it out{so if isinstance(asked, DType) else ''}",
        )
    return CacheLayout(dtype, transposed=False)


def type_of(form: CacheLayout) -> CacheType:
    """Return the type of a cache, as it is asked for."""
    return BLOCKS if form.is_quantized else form.dtype


def check_heads(decoder: Decoder) -> None:
    """Refuse blocks that heads are not a whole number of."""
    dim, size = decoder.config.cached_dim, BLOCKS.elements_per_block
    if decoder.form.is_quantized and dim % size:
        raise UsageError(
            f"--kv-dtype {BLOCKS.name} is in blocks of {size} elements, and heads have {dim}",
            hint="float16, bfloat16 and float32 take heads of any size",
        )


def check_index(decoder: Decoder) -> None:
    """Refuse blocks of a cache of which an index chooses what is seen."""
    topk = decoder.config.index_topk
    if decoder.form.is_quantized and topk is not None and decoder.context > topk:
        raise UsageError(
            f"--kv-dtype {BLOCKS.name}: no kernel attends to chosen keys in blocks",
            hint=f"float16, bfloat16 and float32 are fine; so are blocks with --context {topk}",
        )


def check_source(module: object) -> None:
    """Refuse blocks of a cache that holds what an encoder gives, too."""
    if isinstance(module, EncoderDecoder) and module.form.is_quantized:
        raise UsageError(
            f"--kv-dtype {BLOCKS.name}: no kernel attends to an encoder's output in blocks",
            hint="float16, bfloat16 and float32 are what such a cache may be",
        )


def check_positions(decoder: Decoder, target: Target) -> None:
    """Refuse linear biases where slopes or positions, elements of heads then, would be rounded.

    Raises:
        CompilationFailed: For GPUs whose tensor cores multiply heads of that size, which are
            rounded to their type; others are multiplied as they are.
        UsageError: If the cache is in blocks.
    """
    if decoder.config.position != "alibi":
        return
    own = decoder.config.head_dim
    tiles = TileLayout(HeadSizes(1, 1, own + EXTRA, own + EXTRA), decoder.form.dtype.value)
    if target.kind == "cuda" and tiles.fits(sys.maxsize):
        what = f"tensor cores would round the linear biases (ALiBi) of heads of {own}"
        raise CompilationFailed(what, hint="--dtype float32, or compile it for a CPU")
    if decoder.form.is_quantized:
        raise UsageError(
            f"--kv-dtype {BLOCKS.name}: it would round the positions of linear biases (ALiBi)",
            hint="float16, bfloat16 and float32 keep them",
        )


def _usual(features: tuple[str, ...], *, is_wide: bool) -> DType:
    """The type when none is asked for: half as large unless the matrices are float32 themselves."""
    is_half = not is_wide and CONVERTING.intersection(features)
    return DType.float16 if is_half else DType.float32
