"""The types in which a model's matrices are stored: quantized where kernels read that.

Each matrix of a quantized source keeps the encoding that it has there, on targets with kernels for
it; the others become bfloat16, which is exact enough for what was quantized. Without such a matrix,
and without ``--quantize``, all have one type.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from maxtool.artifact.contents import Read
from maxtool.artifact.request import DTYPES
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.recipe import Binding, Plan
from maxtool.weights.names import first_of
from maxtool.weights.weight_data import WeightData

# Matrices that are not quantized unless the source has them so, as llama.cpp does it: routers,
# which would send tokens to other experts, and the vectors of positions and of types of tokens.
KEPT = re.compile(r"(^|\.)(router|position|token_type)\.weight$")
# Three values are too few for the vectors of tokens and for the head.
TERNARY = frozenset({QuantizationEncoding.TQ1_0, QuantizationEncoding.TQ2_0})
NOT_TERNARY = frozenset({"embed.weight", "lm_head.weight"})
# The type of what was quantized, and is stored decoded.
DECODED = DType.bfloat16


@dataclass(frozen=True, slots=True)
class MatrixType:
    """The type of one matrix.

    Attributes:
        dtype: That of its elements in graphs, and in the artifact unless it is quantized there.
        encoding: How its values are encoded when they are read.
        stays: Whether it is stored so; else they are decoded.
        remark: Why it is not as asked for, or not as the source has it; empty if it is.
    """

    dtype: DType
    encoding: QuantizationEncoding | None = None
    stays: bool = False
    remark: str = ""


def matrices(planned: Plan) -> list[Binding]:
    """The parameters that are matrices."""
    return [binding for binding in planned.parameters.values() if len(binding.shape) > 1]


def is_quantized(binding: Binding) -> bool:
    """Return whether the source has a parameter in blocks."""
    return any(source.encoding for source in binding.sources)


def natural_dtype(planned: Plan) -> DType:
    """The type that stores the matrices without loss: theirs if all agree, else float32."""
    bound = matrices(planned)
    types = {DType.float32 if is_quantized(each) else each.dtype for each in bound}
    agreed = types.pop() if len(types) == 1 else DType.float32
    return agreed if agreed in DTYPES else DType.float32


def mixed_types(
    planned: Plan,
    asked: QuantizationEncoding | None,
    readable: Mapping[str, Collection[QuantizationEncoding]],
) -> dict[str, MatrixType]:
    """A type for each matrix, as the source has it or as asked for.

    Args:
        planned: The checkpoint matched with the recipe.
        asked: The encoding that ``--quantize`` names, if it does.
        readable: The encodings that there are kernels for, by the name of the matrix; none where
            something reads it that has no such kernel.
    """

    def chosen(binding: Binding) -> MatrixType:
        known = readable.get(binding.parameter, ())
        own = _own_type(binding, known)
        if asked is None or asked is binding.encoding:
            return own
        if remark := _refusal(binding, asked, known):
            return replace(own, remark=remark)
        return _encoded(asked, known)

    return {binding.parameter: chosen(binding) for binding in matrices(planned)}


def _own_type(binding: Binding, known: Collection[QuantizationEncoding]) -> MatrixType:
    """The type that a matrix has in the source, or what comes nearest."""
    if not is_quantized(binding):
        return MatrixType(binding.dtype if binding.dtype in DTYPES else DType.float32)
    if binding.encoding is None:
        why = "the recipe rearranges elements within blocks"
        return MatrixType(DECODED, remark=f"decoded to {DECODED.value}, as {why}")
    return _encoded(binding.encoding, known)


def _encoded(encoding: QuantizationEncoding, known: Collection[QuantizationEncoding]) -> MatrixType:
    """The type of a matrix in blocks: stored so if a kernel reads that."""
    if encoding in known:
        return MatrixType(DType.float32, encoding, stays=True)
    why = f"no kernel reads {encoding.name}" if known else "what reads them takes no blocks"
    return MatrixType(DECODED, encoding, remark=f"decoded to {DECODED.value}, as {why}")


def _refusal(
    binding: Binding, asked: QuantizationEncoding, known: Collection[QuantizationEncoding]
) -> str:
    """Return why a matrix is not encoded as asked for; empty if it can be."""
    row, name = binding.shape[-1], binding.parameter
    if row % asked.elements_per_block:
        blocks = f"whole {asked.name} blocks of {asked.elements_per_block}"
        return f"not quantized, as rows of {row} are not {blocks}"
    if KEPT.search(name) or (asked in TERNARY and name in NOT_TERNARY):
        return f"not quantized to {asked.name}, which would change too much"
    return "" if known else "not quantized, as what reads them takes no blocks"


def remarks(types: Mapping[str, MatrixType]) -> Iterator[str]:
    """Yield a line for each reason why matrices are not as asked for, or as the source has them."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, chosen in types.items():
        if chosen.remark:
            groups[chosen.remark].append(name)
    for remark, names in groups.items():
        count = "1 matrix is" if len(names) == 1 else f"{len(names)} matrices are"
        yield f"{count} {remark}: {first_of(names, 1)}"


def reading(planned: Plan, types: Mapping[str, MatrixType]) -> Read:
    """A function that reads parameters, encoded as their types say."""

    def read(name: str) -> WeightData:
        data = planned.read(name)
        encoding = types[name].encoding if name in types else None
        if encoding is None or encoding is data.quantization_encoding:
            return data
        plain = data.data if data.quantization_encoding is None else data.astype(DType.float32).data
        packed = quantize(plain, encoding, tensor=name)
        return WeightData(packed, name, DType.float32, data.shape, encoding)

    return read
