"""Choice of the element type or block encoding of each tensor of an output.

For GGUF the rules are those of llama.cpp's ``convert_hf_to_gguf.py``, vectors, norms and what is no
weight staying float32, and for quantized matrices those of llama-quantize (:mod:`..scheme`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from maxtool.conversion.request import Request
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.scheme import ALWAYS_FLOAT32, ChosenType
from maxtool.recipe.step import Shape
from maxtool.weights import TensorSpec

# llama.h's enum llama_ftype, by what most of a file's elements are where it is not known which mix
# it is; of the mixes of Q3_K, Q4_K and Q5_K the smallest.
FILE_TYPES: Mapping[DType | QuantizationEncoding, int] = {
    DType.float32: 0,
    DType.float16: 1,
    QuantizationEncoding.Q4_0: 2,
    QuantizationEncoding.Q4_1: 3,
    QuantizationEncoding.Q8_0: 7,
    QuantizationEncoding.Q5_0: 8,
    QuantizationEncoding.Q5_1: 9,
    QuantizationEncoding.Q2_K: 10,
    QuantizationEncoding.Q3_K: 11,
    QuantizationEncoding.Q4_K: 14,
    QuantizationEncoding.Q5_K: 16,
    QuantizationEncoding.Q6_K: 18,
    QuantizationEncoding.IQ4_NL: 25,
    QuantizationEncoding.IQ4_XS: 30,
    DType.bfloat16: 32,
    QuantizationEncoding.TQ1_0: 36,
    QuantizationEncoding.TQ2_0: 37,
    QuantizationEncoding.MXFP4: 38,
}


@dataclass(frozen=True)
class SourceTensor:
    """A tensor as the source has it, renamed and rearranged.

    Attributes:
        name: Its name in the output.
        shape: Its shape there.
        dtype: Type of its elements; float32 when quantized.
        encoding: Its block encoding, when its rows can be kept packed.
        blocks: Whether the source has it quantized at all.
    """

    name: str
    shape: Shape
    dtype: DType
    encoding: QuantizationEncoding | None
    blocks: bool


def stays_float32(name: str, shape: Shape) -> bool:
    """Return whether a GGUF tensor is float32 whatever is asked for."""
    return len(shape) < 2 or ALWAYS_FLOAT32.search(name) is not None


def choose(tensor: SourceTensor, request: Request, chosen: ChosenType | None) -> TensorSpec:
    """The output form of a tensor; ``chosen`` is the type that quantizing gives it, if it does."""
    if request.target != "gguf":
        return _spec(tensor, request.dtype or tensor.dtype)
    if chosen is not None:
        return _spec(tensor, chosen.type)
    if stays_float32(tensor.name, tensor.shape):
        return _spec(tensor, DType.float32)
    if request.dtype is not None:
        return _spec(tensor, request.dtype)
    if tensor.encoding is not None:
        return _spec(tensor, tensor.encoding)
    return _spec(tensor, DType.float32 if tensor.dtype is DType.float64 else tensor.dtype)


def main_type(specs: Iterable[TensorSpec]) -> DType | QuantizationEncoding:
    """The type of most elements of matrices; of most elements where there is no matrix."""
    specs = list(specs)
    matrices = [spec for spec in specs if len(spec.shape) > 1] or specs
    counts: Counter[DType | QuantizationEncoding] = Counter()
    for spec in matrices:
        counts[spec.encoding or spec.dtype] += spec.size
    return counts.most_common(1)[0][0] if counts else DType.float32


def _spec(tensor: SourceTensor, stored: DType | QuantizationEncoding) -> TensorSpec:
    if isinstance(stored, DType):
        return TensorSpec(tensor.name, stored, tensor.shape)
    return TensorSpec(tensor.name, DType.float32, tensor.shape, stored)
