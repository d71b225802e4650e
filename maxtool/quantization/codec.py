"""Arrays to block-quantized bytes and back, in chunks of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maxtool.errors import MisshapenWeight, ModelMismatch
from maxtool.parallel import MAX_THREADS, in_parts, usable_cores
from maxtool.quantization import (
    few_bits,
    float4,
    iquants,
    kquants_affine,
    kquants_symmetric,
    legacy,
    ternary,
    uneven,
)
from maxtool.quantization.acceleration import (
    COMPILED,
    BlockQuantizer,
    Warn,
    compiled_for,
    find_quantizer,
)
from maxtool.quantization.block import BlockColumns, Codec, Float32, Records, UInt8
from maxtool.quantization.encoding import QuantizationEncoding
from maxtool.quantization.importance import Importance

# Elements worked on at a time: a few temporaries fit a core's second cache. Not a power of two: the
# rows of a chunk's columns would then share their places in the cache.
CHUNK_ELEMENTS = 64_000
# Elements that compiled code quantizes at a time.
COMPILED_ELEMENTS = 1 << 18
# Elements for which NumPy takes longer than the compiler takes to be loaded: of encodings that
# search for scales, and of others.
WORTHWHILE = {True: 1 << 23, False: 1 << 27}
# What elements are quantized to, and whether errors are weighed by importance.
Work: TypeAlias = tuple[QuantizationEncoding, bool]
# The float16 fields of the encodings that can be written.
SCALES = frozenset({"d", "m", "dmin"})

CODECS: dict[QuantizationEncoding, Codec] = {
    **legacy.CODECS,
    **kquants_affine.CODECS,
    **kquants_symmetric.CODECS,
    **iquants.CODECS,
    **ternary.CODECS,
    **uneven.CODECS,
    **float4.CODECS,
    **few_bits.CODECS,
}
ENCODABLE = frozenset(encoding for encoding, codec in CODECS.items() if codec.encode)


def quantize(
    array: NDArray[Any],
    encoding: QuantizationEncoding,
    *,
    importance: ArrayLike | None = None,
    tensor: str | None = None,
) -> UInt8:
    """Encode values ``[..., row]`` to bytes ``[..., bytes of a row]``, bit for bit as ggml does.

    Values are converted to float32 first, chunk by chunk.

    Args:
        array: The values.
        encoding: How to encode them.
        importance: How much the squared error of each column counts, ``[row]``; or ``[..., row]``
            for an array ``[..., rows, row]`` of several matrices. Q8_0, TQ1_0, TQ2_0 and MXFP4,
            which search for nothing, take no notice of it.
        tensor: A name for errors.

    Raises:
        ModelMismatch: If there is no encoder, a value or block scale is not finite, or a number of
            the importance is negative or not finite.
        MisshapenWeight: If rows are not a whole number of blocks, or the importance has not the
            array's shape.
    """
    codec = CODECS[encoding]
    if codec.encode is None:
        known = ", ".join(sorted(known.name for known in ENCODABLE))
        raise ModelMismatch(f"{encoding.name} cannot be written; {known} can", tensor=tensor)
    shape = _packed_shape(array.shape, encoding, tensor)
    encode, blocks = codec.encode, array.reshape(-1, encoding.elements_per_block)
    weighing = None
    if importance is not None:
        size, by_rows = blocks.shape[1], codec.by_rows
        weighing = Importance.of(importance, array, size, by_rows=by_rows, tensor=tensor)
    result = np.empty((len(blocks), encoding.block_size), np.uint8)
    records = result.view(codec.layout)[:, 0]

    def work(part: slice) -> None:
        with np.errstate(all="ignore"):  # what overflows is found in the scales
            columns = BlockColumns.of(blocks[part], *(weighing.of_blocks(part) if weighing else ()))
            if not np.isfinite(columns.magnitude).all():
                raise ModelMismatch(f"{encoding.name} cannot hold NaN or infinity", tensor=tensor)
            encode(columns, records[part])

    weights = weighing if codec.searches or codec.by_rows else None
    compiled = find_quantizer(encoding, array.dtype, weighed=weights is not None)
    left = [slice(0, len(blocks))]
    if compiled is not None:
        left = _compiled(compiled, blocks, result, weights)
    threads = MAX_THREADS if codec.searches or weights else 1
    for run in left:
        in_parts(run.stop - run.start, _step(encoding), _from(run.start, work), threads=threads)
    _check_scales(records, encoding, tensor)
    return result.reshape(shape)


def _compiled(
    quantizer: BlockQuantizer, blocks: NDArray[Any], result: UInt8, weights: Importance | None
) -> list[slice]:
    """Quantize blocks by compiled code on all threads; returns those that it left."""

    def work(part: slice) -> list[slice]:
        given = None if weights is None else weights.weights(part)
        left = quantizer(blocks[part], result[part], given)
        return [slice(part.start + run.start, part.start + run.stop) for run in left]

    step = COMPILED_ELEMENTS // blocks.shape[1]
    shares = in_parts(len(blocks), step, work, threads=usable_cores())
    return [run for share in shares for run in share]


def dequantize(
    data: UInt8, encoding: QuantizationEncoding, *, tensor: str | None = None
) -> Float32:
    """Decode bytes ``[..., bytes of a row]`` to float32 ``[..., row]``; errors as ``quantize``."""
    blocks_per_row, rest = divmod(data.shape[-1], encoding.block_size)
    if rest:
        what = f"rows of {data.shape[-1]} bytes are not whole {encoding.name} blocks"
        raise MisshapenWeight(what, tensor=tensor)
    codec = CODECS[encoding]
    decode, blocks = codec.decode, data.reshape(-1, encoding.block_size)
    records = np.ascontiguousarray(blocks).view(codec.layout)[:, 0]
    result = np.empty((len(blocks), encoding.elements_per_block), np.float32)

    def work(part: slice) -> None:
        with np.errstate(all="ignore"):  # infinite and NaN scales decode as they multiply
            decode(records[part], result[part])

    in_parts(len(blocks), _step(encoding), work)
    return result.reshape(*data.shape[:-1], blocks_per_row * encoding.elements_per_block)


def accelerated(
    elements: Mapping[Work, int], warn: Warn = lambda _: None
) -> AbstractContextManager[None]:
    """Let arrays be quantized by compiled code within, if there is enough to do.

    Args:
        elements: How many of them are quantized to an encoding, without or with importance.
        warn: What is told why an encoding is left to NumPy all the same.
    """
    work = sum(
        count / WORTHWHILE[_searches(encoding, weighed=weighed)]
        for (encoding, weighed), count in elements.items()
        if encoding in COMPILED
    )
    return compiled_for({encoding for encoding, _ in elements} if work >= 1 else (), warn)


def _searches(encoding: QuantizationEncoding, *, weighed: bool) -> bool:
    """Return whether the codec searches for scales, without or with importance."""
    codec = CODECS[encoding]
    return codec.searches or (weighed and codec.by_rows)


def _from(start: int, work: Callable[[slice], None]) -> Callable[[slice], None]:
    """Do the work with what begins at ``start``."""
    return lambda part: work(slice(start + part.start, start + part.stop))


def _step(encoding: QuantizationEncoding) -> int:
    """Blocks worked on at a time."""
    return CHUNK_ELEMENTS // encoding.elements_per_block


def _packed_shape(
    shape: tuple[int, ...], encoding: QuantizationEncoding, tensor: str | None
) -> tuple[int, ...]:
    if not shape:
        raise MisshapenWeight(f"a scalar cannot be stored as {encoding.name}", tensor=tensor)
    try:
        return (*shape[:-1], encoding.row_bytes(shape[-1]))
    except ValueError as error:
        raise MisshapenWeight(str(error), tensor=tensor) from None


def _check_scales(records: Records, encoding: QuantizationEncoding, tensor: str | None) -> None:
    for name in SCALES.intersection(records.dtype.names or ()):
        if not np.isfinite(records[name]).all():
            what = f"values are too large for {encoding.name}, whose scales are float16"
            raise ModelMismatch(what, tensor=tensor)
