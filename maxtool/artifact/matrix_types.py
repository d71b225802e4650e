"""The types in which a model's matrices are stored: quantized where kernels read that.

Each matrix of a quantized source keeps the encoding that it has there, on targets with kernels for
it; the others become bfloat16, which is exact enough for what was quantized. Without such a matrix,
and without ``--quantize``, all have one type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from maxtool.artifact.contents import Read
from maxtool.artifact.request import DTYPES, Request
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.quantization.block import Float32
from maxtool.quantization.scheme import ChosenType, Scheme
from maxtool.recipe import Binding, Plan
from maxtool.recipe.quantized_types import parameter_types
from maxtool.recipe.quantizing_notes import check_requantized, fallback_notes
from maxtool.weights.names import first_of
from maxtool.weights.weight_data import WeightData

# What becomes of rows that are not of whole blocks of any type.
KEPT = "not quantized"
UNREADABLE = "not quantized, as what reads them takes no blocks"
# The type of what was quantized, and is stored decoded.
DECODED = DType.bfloat16


def check_quantize(request: Request, target: Target) -> None:
    """Refuse to quantize where no kernel or no comparison could make use of it."""
    if request.quantize is None:
        return
    if request.dtype is not None:
        raise UsageError("--dtype and --quantize exclude each other")
    if target.kind != "cpu":
        what = f"--quantize is for CPUs: no kernel of {target.label} reads blocks"
        raise UsageError(what, hint="--dtype float16 or bfloat16 is the least they read")
    if request.check and request.against == "transformers":
        what = "--check transformers cannot tell the rounding of --quantize from a wrong reading"
        raise UsageError(what, hint="check without --quantize first, then with --check")


@dataclass(frozen=True, slots=True)
class MatrixType:
    """The type of one matrix.

    Attributes:
        dtype: That of its elements in graphs, and in the artifact unless it is quantized there.
        encoding: How its values are encoded when they are read.
        stays: Whether it is stored so; else they are decoded.
        remark: Why it is not as asked for, or not as the source has it; empty if it is.
        importance: That of its columns, by which it is quantized; of a stack of matrices
            ``[matrices, row]``.
    """

    dtype: DType
    encoding: QuantizationEncoding | None = None
    stays: bool = False
    remark: str = ""
    importance: Float32 | None = field(default=None, compare=False, repr=False)


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
    scheme: Scheme | None,
    readable: Mapping[str, Collection[QuantizationEncoding]],
) -> tuple[dict[str, MatrixType], list[str]]:
    """A type for each matrix, as the source has it or as asked for; and what to tell of them.

    Args:
        planned: The checkpoint matched with the recipe.
        scheme: How matrices are to be quantized, if they are.
        readable: The encodings that there are kernels for, by the name of the matrix; none where
            something reads it that has no such kernel.
    """
    wanted, notes = ({}, []) if scheme is None else _wanted(planned, scheme)
    types = {
        binding.parameter: _chosen(
            binding, wanted.get(binding.parameter), readable.get(binding.parameter, ())
        )
        for binding in matrices(planned)
    }
    check_requantized([*_again(planned, types)], scheme)
    return types, notes


def _wanted(planned: Plan, scheme: Scheme) -> tuple[Mapping[str, ChosenType], list[str]]:
    """The types that a scheme gives parameters, and what to tell of them."""
    chosen = parameter_types(planned, scheme)
    notes = fallback_notes(chosen.types, strict=scheme.strict, last=KEPT)
    return chosen.types, [*notes, *chosen.notes]


def _chosen(
    binding: Binding, wanted: ChosenType | None, known: Collection[QuantizationEncoding]
) -> MatrixType:
    """The type that a matrix is wanted to have, or its own where it cannot have it."""
    own = _own_type(binding, known)
    if wanted is None or wanted.type is binding.encoding:
        return own
    if isinstance(wanted.type, DType):
        return own if wanted.missed else MatrixType(wanted.type)
    if not known:
        return replace(own, remark=UNREADABLE)
    return replace(_encoded(wanted.type, known), importance=wanted.importance)


def _again(planned: Plan, types: Mapping[str, MatrixType]) -> Iterator[str]:
    """The matrices that are quantized in the source, and are to be otherwise."""
    for binding in matrices(planned):
        encoding = types[binding.parameter].encoding
        if is_quantized(binding) and encoding is not None and encoding is not binding.encoding:
            yield binding.parameter


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
        columns = types[name].importance
        if columns is not None and len(data.shape) < 3:
            (columns,) = columns
        packed = quantize(plain, encoding, importance=columns, tensor=name)
        return WeightData(packed, name, DType.float32, data.shape, encoding)

    return read
