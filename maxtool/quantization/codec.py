"""Arrays to block-quantized bytes and back, in chunks of bounded size.

``CODECS`` lists what is computed here. IQ, TQ, MXFP4 and NVFP4 blocks are decoded by the gguf
package's reference code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import MisshapenWeight, ModelMismatch
from maxtool.quantization import kquants, legacy
from maxtool.quantization.block import Codec, Float32, Records, UInt8
from maxtool.quantization.encoding import QuantizationEncoding

# Elements worked on at a time: the temporaries of one chunk fit a core's cache.
CHUNK_ELEMENTS = 1 << 17
# The float16 fields of the encodings that can be written.
SCALES = frozenset({"d", "m"})

CODECS: dict[QuantizationEncoding, Codec] = {**legacy.CODECS, **kquants.CODECS}
ENCODABLE = frozenset(encoding for encoding, codec in CODECS.items() if codec.encode)


def quantize(
    array: NDArray[Any], encoding: QuantizationEncoding, *, tensor: str | None = None
) -> UInt8:
    """Encode an array, bit for bit as ggml's reference functions do.

    Args:
        array: Finite values ``[..., row]``; converted to float32 first, chunk by chunk.
        encoding: One of ``ENCODABLE``.
        tensor: The tensor's name, for errors.

    Returns:
        Bytes ``[..., bytes of a row]``.

    Raises:
        ModelMismatch: If there is no encoder, or a value or block scale is not finite.
        MisshapenWeight: If rows are not a whole number of blocks.
    """
    codec = CODECS.get(encoding)
    if codec is None or codec.encode is None:
        known = ", ".join(sorted(known.name for known in ENCODABLE))
        raise ModelMismatch(f"{encoding.name} cannot be written; {known} can", tensor=tensor)
    shape = _packed_shape(array.shape, encoding, tensor)
    elements = array.reshape(-1, encoding.elements_per_block)
    result = np.empty((len(elements), encoding.block_size), np.uint8)
    with np.errstate(all="ignore"):  # what overflows is found in the scales
        for part in _chunks(len(elements), encoding):
            records = codec.encode(_finite(elements[part], encoding, tensor))
            _check_scales(records, encoding, tensor)
            result[part] = records.view(np.uint8).reshape(-1, encoding.block_size)
    return result.reshape(shape)


def dequantize(
    data: UInt8, encoding: QuantizationEncoding, *, tensor: str | None = None
) -> Float32:
    """Decode bytes ``[..., bytes of a row]`` to float32 ``[..., row]``.

    Args:
        data: What ``quantize`` returns, or the payload of a GGUF tensor.
        encoding: How the bytes are to be read.
        tensor: The tensor's name, for errors.

    Raises:
        ModelMismatch: If no decoder for ``encoding`` is known.
        MisshapenWeight: If rows are not a whole number of blocks.
    """
    blocks_per_row, rest = divmod(data.shape[-1], encoding.block_size)
    if rest:
        raise MisshapenWeight(
            f"rows of {data.shape[-1]} bytes are not whole {encoding.name} blocks", tensor=tensor
        )
    codec = CODECS.get(encoding)
    blocks = data.reshape(-1, encoding.block_size)
    result = np.empty((len(blocks), encoding.elements_per_block), np.float32)
    with np.errstate(all="ignore"):  # infinite and NaN scales decode as they multiply
        for part in _chunks(len(blocks), encoding):
            if codec is None:
                result[part] = _by_gguf(blocks[part], encoding, tensor)
            else:
                records = np.ascontiguousarray(blocks[part]).view(codec.layout)[:, 0]
                result[part] = codec.decode(records)
    return result.reshape(*data.shape[:-1], blocks_per_row * encoding.elements_per_block)


def _chunks(blocks: int, encoding: QuantizationEncoding) -> Iterator[slice]:
    step = CHUNK_ELEMENTS // encoding.elements_per_block
    for start in range(0, blocks, step):
        yield slice(start, start + step)


def _packed_shape(
    shape: tuple[int, ...], encoding: QuantizationEncoding, tensor: str | None
) -> tuple[int, ...]:
    if not shape:
        raise MisshapenWeight(f"a scalar cannot be stored as {encoding.name}", tensor=tensor)
    try:
        return (*shape[:-1], encoding.row_bytes(shape[-1]))
    except ValueError as error:
        raise MisshapenWeight(str(error), tensor=tensor) from None


def _finite(values: NDArray[Any], encoding: QuantizationEncoding, tensor: str | None) -> Float32:
    converted = values.astype(np.float32, copy=False)
    if not np.isfinite(converted).all():
        raise ModelMismatch(f"{encoding.name} cannot hold NaN or infinity", tensor=tensor)
    return converted


def _check_scales(records: Records, encoding: QuantizationEncoding, tensor: str | None) -> None:
    for name in SCALES.intersection(records.dtype.names or ()):
        if not np.isfinite(records[name]).all():
            raise ModelMismatch(
                f"values are too large for {encoding.name}, whose scales are float16", tensor=tensor
            )


def _by_gguf(blocks: UInt8, encoding: QuantizationEncoding, tensor: str | None) -> Float32:
    from gguf import GGMLQuantizationType, quants

    try:
        decoded: Float32 = quants.dequantize(
            np.ascontiguousarray(blocks), GGMLQuantizationType(encoding.gguf_id)
        )
    except NotImplementedError:
        raise ModelMismatch(f"no decoder for {encoding.name} is known", tensor=tensor) from None
    return decoded
