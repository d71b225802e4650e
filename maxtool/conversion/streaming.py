"""The bytes of a tensor of the output, a few rows at a time.

Where rules only move whole rows, rows are read where they are stored, so that a tensor of any size
takes the memory of a chunk; otherwise the tensor is made whole, and converted in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from maxtool.casting import cast, oddities
from maxtool.conversion.output_tensors import natural, plain
from maxtool.dtype import DType
from maxtool.quantization import quantize
from maxtool.quantization.block import Float32
from maxtool.quantization.codec import dequantize
from maxtool.recipe import OutputTensor, Plan
from maxtool.recipe.gathered_rows import Gathered, gathered
from maxtool.recipe.step import Array
from maxtool.weights import TensorSpec
from maxtool.weights.weight_data import lossy

# Of the source, or of float32 elements if it is quantized. Rows are never parted.
CHUNK_BYTES = 1 << 23


def chunks(
    planned: Plan,
    spec: TensorSpec,
    emission: OutputTensor,
    warn: Callable[[str], None],
    importance: Float32 | None = None,
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
    if encoding and encoding is spec.encoding:
        return parts
    if encoding:
        parts = (dequantize(part, encoding, tensor=spec.name) for part in parts)
    return _cast(parts, spec, warn) if spec.encoding is None else _packed(parts, spec, importance)


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


def _cast(parts: Iterator[Array], spec: TensorSpec, warn: Callable[[str], None]) -> Iterator[Array]:
    """The parts as the type that is written."""
    odd: frozenset[str] = frozenset()
    lost, source = 0, spec.dtype
    for values in parts:
        odd |= oddities(values)
        source = DType.from_numpy(values.dtype)
        converted, count = (values, 0) if source is spec.dtype else cast(values, spec.dtype)
        lost += count
        if not lost:  # what follows is only counted
            yield converted
    if lost:
        raise lossy(spec.name, source, spec.dtype, lost, spec.size)
    if odd:
        warn(f"{spec.name} holds {' and '.join(sorted(odd))}")
