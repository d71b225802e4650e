"""The bytes of a tensor of the output, a few rows at a time.

Where rules only move whole rows, rows are read where they are stored, so that a tensor of any size
takes the memory of a chunk; otherwise the tensor is made whole, and converted in chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from maxtool.casting import cast, oddities
from maxtool.conversion.output_tensors import natural, plain
from maxtool.dtype import DType
from maxtool.errors import ModelMismatch
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.quantization.block import Float32
from maxtool.quantization.codec import dequantize
from maxtool.recipe import OutputTensor, Plan
from maxtool.recipe.gathered_rows import Gathered, gathered
from maxtool.recipe.step import Array
from maxtool.weights import TensorSpec
from maxtool.weights.stored_weight import StoredWeight
from maxtool.weights.weight_data import lossy

# Of the source, or of float32 elements if it is quantized. Rows are never parted.
CHUNK_BYTES = 1 << 23


def chunks(
    planned: Plan,
    spec: TensorSpec,
    emission: OutputTensor,
    warn: Callable[[str], None],
    importance: Float32 | None = None,
    *,
    allow_nonfinite: bool = False,
) -> Iterator[Array]:
    """The payload of a tensor, in order; ``warn`` is told what is odd about it in the end.

    ``importance`` is that of the columns of its matrices, ``[matrices, row]``.
    """
    rows = gathered(planned, emission)
    kept = natural(planned, emission).encoding
    if rows is not None:
        parts, encoding = _stored(planned, rows), rows.sources[0].encoding
    elif kept is not None and kept is spec.encoding:
        whole = emission.apply([planned.read(name).data for name in emission.parameters])
        parts, encoding = _slabs(whole), kept
    else:
        parts, encoding = _slabs(plain(planned, emission)), None
    return made(parts, spec, encoding, warn, importance, allow_nonfinite=allow_nonfinite)


def _stored(planned: Plan, rows: Gathered) -> Iterator[Array]:
    """The rows as they are stored."""
    stored = [planned.checkpoint.stored(source.name) for source in rows.sources]
    step = max(1, CHUNK_BYTES // (4 * max(1, stored[0].row_elements)))
    for start in range(0, len(rows.numbers), step):
        for source, numbers in rows.runs(slice(start, start + step)):
            yield stored[source].rows(numbers, range(stored[source].row_items))


def _slabs(array: Array) -> Iterator[Array]:
    """Rows of the first dimension of an array; of one in order a view."""
    row = array[:1].nbytes if array.ndim else array.nbytes
    step = max(1, CHUNK_BYTES // max(1, row))
    if not array.ndim:
        yield array
        return
    for start in range(0, len(array), step):
        yield array[start : start + step]


def _packed(
    parts: Iterator[Array], spec: TensorSpec, importance: Float32 | None
) -> Iterator[Array]:
    """The parts as the blocks that are written."""
    assert spec.encoding is not None  # noqa: S101 - for the type checker
    done = 0
    for part in parts:
        rows = part.reshape(-1, spec.shape[-1])
        for matrix, some in _by_matrix(rows, done, spec.shape[-2] if importance is not None else 0):
            columns = None if importance is None else importance[matrix]
            yield quantize(some, spec.encoding, importance=columns, tensor=spec.name)
        done += len(rows)


def _by_matrix(rows: Array, done: int, each: int) -> Iterator[tuple[int, Array]]:
    """Rows of a stack of matrices of ``each`` rows, parted where one ends; all at once if 0."""
    start = 0
    while start < len(rows):
        matrix, passed = divmod(done + start, each) if each else (0, 0)
        end = start + each - passed if each else len(rows)
        yield matrix, rows[start:end]
        start = end


def stored_slabs(weight: StoredWeight) -> Iterator[Array]:
    """All rows of a weight as they are stored."""
    step = max(1, CHUNK_BYTES // (4 * max(1, weight.row_elements)))
    for start in range(0, weight.row_count, step):
        numbers = np.arange(start, min(start + step, weight.row_count))
        yield weight.rows(numbers, range(weight.row_items))


def made(
    parts: Iterator[Array],
    spec: TensorSpec,
    encoding: QuantizationEncoding | None,
    warn: Callable[[str], None],
    importance: Float32 | None = None,
    *,
    allow_nonfinite: bool = False,
) -> Iterator[Array]:
    """The parts decoded, and as the type or the blocks that are written."""
    if encoding and encoding is spec.encoding:
        return parts
    if encoding:
        parts = (dequantize(part, encoding, tensor=spec.name) for part in parts)
    if spec.encoding is not None:
        return _packed(parts, spec, importance)
    return _cast(parts, spec, warn, allow_nonfinite=allow_nonfinite)


def _cast(
    parts: Iterator[Array],
    spec: TensorSpec,
    warn: Callable[[str], None],
    *,
    allow_nonfinite: bool,
) -> Iterator[Array]:
    """The parts as the type that is written."""
    odd: Counter[str] = Counter()
    source = spec.dtype
    for values in parts:
        odd += _counted(values)
        source = DType.from_numpy(values.dtype)
        converted, lost = (values, 0) if source is spec.dtype else cast(values, spec.dtype)
        odd[LOST] += lost
        if allow_nonfinite or not odd[LOST]:  # what follows is only counted
            yield converted
    if source is not spec.dtype:
        check_cast(replace(spec, dtype=source), spec, odd, allow_nonfinite=allow_nonfinite)
    if +odd:
        warn(f"{spec.name} holds {said(odd)}")


# How values that another type does not hold are counted.
LOST = "beyond the range of its type"


def check_cast(
    before: TensorSpec, after: TensorSpec, odd: Mapping[str, int], *, allow_nonfinite: bool
) -> None:
    """Refuse a cast of NaN, infinities, and finite values that are none in the other type."""
    if allow_nonfinite or not any(odd.values()):
        return
    if odd.get(LOST):
        raise lossy(after.name, before.dtype, after.dtype, odd[LOST], after.size)
    what = f"{before.dtype.name} is cast to {after.dtype.name}, and there are {said(odd)}"
    hint = "pass --allow-nonfinite to write them all the same"
    raise ModelMismatch(what, tensor=after.name, hint=hint)


def said(odd: Mapping[str, int]) -> str:
    """Counts as words: ``2 NaN and 1 infinite``."""
    return " and ".join(f"{count} {what}" for what, count in sorted(odd.items()) if count)


def _counted(values: Array) -> Counter[str]:
    """Count the values of a part that are not finite."""
    if not DType.from_numpy(values.dtype).is_float() or not oddities(values):
        return Counter()
    with np.errstate(invalid="ignore"):
        counts = {"NaN": np.isnan(values), "infinite": np.isinf(values)}
    return Counter({what: int(np.count_nonzero(there)) for what, there in counts.items()})
