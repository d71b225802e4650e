"""The bytes of a tensor of the output, a few rows at a time, each portion by a call of its own.

Where rules only move whole rows, rows are read where they are stored, so that a tensor of any size
takes the memory of a few portions; otherwise the tensor is made whole, and converted in portions.
Calls may be made side by side: what they return is put together in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

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
CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows of a tensor, as they are stored.

    Attributes:
        first: How many rows come before, counted through all matrices.
        read: Reads them.
    """

    first: int
    read: Callable[[], Array]


@dataclass(frozen=True, slots=True)
class Made:
    """A portion as it is written.

    Attributes:
        arrays: It, in parts that follow each other.
        odd: How many of its values are not finite, or lost in a cast, by what is said of them.
        source: The element type that it was cast from; None where it was not.
    """

    arrays: list[Array]
    odd: Counter[str] = field(default_factory=Counter)
    source: DType | None = None


Call = Callable[[], Made]


def calls(
    planned: Plan, spec: TensorSpec, emission: OutputTensor, importance: Float32 | None = None
) -> Iterator[Call | None]:
    """The calls that make the payload of a tensor, in order; None before it is made whole.

    ``importance`` is that of the columns of its matrices, ``[matrices, row]``.
    """
    rows = gathered(planned, emission)
    kept = natural(planned, emission).encoding
    if rows is not None:
        yield from made(_stored(planned, rows), spec, rows.sources[0].encoding, importance)
        return
    if 4 * spec.size > CHUNK_BYTES:
        yield None  # what came before, perhaps another whole tensor, is no longer held
    if kept is not None and kept is spec.encoding:
        whole = emission.apply([planned.read(name).data for name in emission.parameters])
        yield from made(_slabs(whole), spec, kept, importance)
    else:
        yield from made(_slabs(plain(planned, emission)), spec, None, importance)


def _stored(planned: Plan, rows: Gathered) -> Iterator[Portion]:
    """The rows as they are stored."""
    stored = [planned.checkpoint.stored(source.name) for source in rows.sources]
    step = max(1, CHUNK_BYTES // (4 * max(1, stored[0].row_elements)))
    for start in range(0, len(rows.numbers), step):
        first = start
        for source, numbers in rows.runs(slice(start, start + step)):
            columns = range(stored[source].row_items)
            yield Portion(first, partial(stored[source].rows, numbers, columns))
            first += len(numbers)


def _slabs(array: Array) -> Iterator[Portion]:
    """Rows of the first dimension of an array; of one in order a view."""
    if not array.ndim:
        yield Portion(0, lambda: array)
        return
    each = array[0].size // max(1, array.shape[-1]) if len(array) else 0
    step = max(1, CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        yield Portion(start * each, partial(array.__getitem__, slice(start, start + step)))


def stored_slabs(weight: StoredWeight) -> Iterator[Portion]:
    """All rows of a weight as they are stored."""
    step = max(1, CHUNK_BYTES // (4 * max(1, weight.row_elements)))
    for start in range(0, weight.row_count, step):
        numbers = np.arange(start, min(start + step, weight.row_count))
        yield Portion(start, partial(weight.rows, numbers, range(weight.row_items)))


def made(
    portions: Iterable[Portion],
    spec: TensorSpec,
    encoding: QuantizationEncoding | None,
    importance: Float32 | None = None,
) -> Iterator[Call]:
    """The calls that decode each portion, and make of it the type or the blocks to write."""
    return (partial(_made, portion, spec, encoding, importance) for portion in portions)


def _made(
    portion: Portion,
    spec: TensorSpec,
    encoding: QuantizationEncoding | None,
    importance: Float32 | None,
) -> Made:
    values = portion.read()
    if encoding and encoding is spec.encoding:
        return Made([values])
    if encoding:
        values = dequantize(values, encoding, tensor=spec.name)
    if spec.encoding is None:
        return _cast(values, spec)
    rows = values.reshape(-1, spec.shape[-1])
    if importance is None:
        return Made([quantize(rows, spec.encoding, tensor=spec.name)])
    matrices = _by_matrix(rows, portion.first, spec.shape[-2])
    return Made(
        [
            quantize(some, spec.encoding, importance=importance[matrix], tensor=spec.name)
            for matrix, some in matrices
        ]
    )


def _by_matrix(rows: Array, done: int, each: int) -> Iterator[tuple[int, Array]]:
    """Rows of a stack of matrices of ``each`` rows, parted where one ends."""
    start = 0
    while start < len(rows):
        matrix, passed = divmod(done + start, each)
        end = start + each - passed
        yield matrix, rows[start:end]
        start = end


def _cast(values: Array, spec: TensorSpec) -> Made:
    odd, source = counted(values), DType.from_numpy(values.dtype)
    if source is spec.dtype:
        return Made([values], odd, source)
    converted, lost = cast(values, spec.dtype)
    odd[LOST] += lost
    return Made([converted], odd, source)


def put_together(
    portions: Iterable[Made],
    spec: TensorSpec,
    warn: Callable[[str], None],
    *,
    allow_nonfinite: bool = False,
) -> Iterator[Array]:
    """The payload of a tensor; ``warn`` is told what is odd about it in the end."""
    odd: Counter[str] = Counter()
    source: DType | None = None
    for portion in portions:
        odd += portion.odd
        source = portion.source
        if allow_nonfinite or not odd[LOST]:  # what follows is only counted
            yield from portion.arrays
    if source is not None and source is not spec.dtype:
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


def counted(values: Array) -> Counter[str]:
    """Count the values of a part that are not finite, by what is said of them."""
    if not DType.from_numpy(values.dtype).is_float() or not oddities(values):
        return Counter()
    with np.errstate(invalid="ignore"):
        counts = {"NaN": np.isnan(values), "infinite": np.isinf(values)}
    return Counter({what: int(np.count_nonzero(there)) for what, there in counts.items()})
