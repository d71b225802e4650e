"""Choice of the element type or block encoding of each tensor of an output.

For GGUF the rules are those of llama.cpp's ``convert_hf_to_gguf.py``: vectors, norms and what is no
weight stay float32, and rows that are no whole number of blocks become float16.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from maxtool.conversion.request import Request
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from maxtool.recipe.step import Shape
from maxtool.weights import TensorSpec

# Tensors that llama.cpp only takes as float32: norms, biases, routers of experts, embeddings of
# positions and token types.
ALWAYS_FLOAT32 = re.compile(
    r"_norm\.weight$|(?<!\.weight)$|\.ffn_gate_inp(_shexp)?\.weight$"
    r"|^(position_embd|token_types)\.weight$"
)
FALLBACK = DType.float16
# Three values are too few for the embedding and the head, which llama.cpp keeps as float16 then.
TERNARY = frozenset({QuantizationEncoding.TQ1_0, QuantizationEncoding.TQ2_0})
NEVER_TERNARY = frozenset({"token_embd.weight", "output.weight"})

# llama.h's enum llama_ftype, by what most of a file's elements are; of the mixes of Q3_K, Q4_K and
# Q5_K the smallest, which llama-quantize --pure makes of that type alone.
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


def choose(tensor: SourceTensor, request: Request) -> tuple[TensorSpec, str | None]:
    """Return the output form of a tensor, and a remark about it, if there is one."""
    if request.target != "gguf":
        return _spec(tensor, request.dtype or tensor.dtype), None
    if stays_float32(tensor.name, tensor.shape):
        return _spec(tensor, DType.float32), None
    if request.encoding is not None:
        return _quantized(tensor, request.encoding)
    if request.dtype is not None:
        return _spec(tensor, request.dtype), None
    if tensor.encoding is not None:
        return TensorSpec(tensor.name, DType.float32, tensor.shape, tensor.encoding), None
    return _spec(tensor, DType.float32 if tensor.dtype is DType.float64 else tensor.dtype), None


def main_type(specs: Iterable[TensorSpec]) -> DType | QuantizationEncoding:
    """The type of most elements of matrices; of most elements where there is no matrix."""
    specs = list(specs)
    matrices = [spec for spec in specs if len(spec.shape) > 1] or specs
    counts: Counter[DType | QuantizationEncoding] = Counter()
    for spec in matrices:
        counts[spec.encoding or spec.dtype] += spec.size
    return counts.most_common(1)[0][0] if counts else DType.float32


def _spec(tensor: SourceTensor, dtype: DType) -> TensorSpec:
    return TensorSpec(tensor.name, dtype, tensor.shape)


def _quantized(
    tensor: SourceTensor, encoding: QuantizationEncoding
) -> tuple[TensorSpec, str | None]:
    row = tensor.shape[-1]
    if encoding in TERNARY and tensor.name in NEVER_TERNARY:
        return _spec(tensor, FALLBACK), f"{tensor.name}: written as {FALLBACK.value}, not ternary"
    if row % encoding.elements_per_block:
        why = f"rows of {row} are not whole {encoding.name} blocks of {encoding.elements_per_block}"
        return _spec(tensor, FALLBACK), f"{tensor.name}: {why}; written as {FALLBACK.value}"
    return TensorSpec(tensor.name, DType.float32, tensor.shape, encoding), None
