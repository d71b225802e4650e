"""Quantized weights of a linear layer, laid out as kernels read them: see ``quantized_layout``.

The bytes are those of the file in another order, but for scales of six bits, which get a byte each:
Q4_K takes 2.8 percent more than its blocks, Q5_K 2.3, Q3_K 3.6, IQ4_XS 1.5, the others nothing.
Columns beyond the last output feature, which fill up its record, come on top.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from maxtool.compiler import quantized_scales as s
from maxtool.compiler.quantized_layout import COLUMNS, Field, RecordLayout, layout_of
from maxtool.parallel import in_parts
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.codec import CODECS
from maxtool.runtime.loader.memory import aligned

UInt8 = NDArray[np.uint8]
# Fields of a block or of a record by name, as bytes ``[..., bytes]``.
Fields = dict[str, UInt8]

# Bytes of blocks that are transposed at a time.
CHUNK = 1 << 20

E = QuantizationEncoding


def quantized_shape(encoding: QuantizationEncoding, n: int, k: int) -> tuple[int, int, int]:
    """The shape of a packed weight of ``n`` features and ``k`` terms, in bytes.

    Column blocks, records, bytes of a record. ValueError if rows are not of whole blocks or the
    encoding is not packed.
    """
    layout = layout_of(encoding)
    encoding.row_bytes(k)
    return -(-n // COLUMNS), k // layout.span, layout.nbytes


def pack_quantized(
    blocks: UInt8, encoding: QuantizationEncoding, *, out: UInt8 | None = None
) -> UInt8:
    """Pack the blocks of a weight, ``[n, bytes of a row]``, a memory map or a view included.

    The result has ``quantized_shape``, with zeros beyond n. Little memory is used beside ``out``.
    """
    if blocks.ndim != 2 or blocks.dtype != np.uint8 or blocks.shape[1] % encoding.block_size:
        what = f"{blocks.dtype}{list(blocks.shape)}"
        raise ValueError(f"blocks of {encoding.name} to pack are rows of bytes, not {what}")
    layout, n = layout_of(encoding), len(blocks)
    spans = blocks.shape[1] // encoding.block_size
    shape = quantized_shape(encoding, n, spans * layout.span)
    out = aligned(shape, np.dtype(np.uint8), np.empty) if out is None else out
    if out.shape != shape or out.dtype != np.uint8:
        raise ValueError(f"out is {out.dtype}{out.shape}, the packed weight uint8{shape}")
    whole = n // COLUMNS

    def work(part: slice) -> None:
        rows = blocks[part.start * COLUMNS : part.stop * COLUMNS]
        _transpose_in(rows.reshape(-1, COLUMNS, spans, encoding.block_size), layout, out[part])

    in_parts(whole, _step(blocks.shape[1]), work)
    if rest := n % COLUMNS:
        last = np.zeros((1, COLUMNS, spans, encoding.block_size), np.uint8)
        last[0, :rest] = blocks[whole * COLUMNS :].reshape(rest, spans, -1)
        _transpose_in(last, layout, out[whole:])
        _clear(out[whole], layout, rest)
    return out


def unpack_quantized(packed: UInt8, encoding: QuantizationEncoding, n: int) -> UInt8:
    """Undo :func:`pack_quantized`: the blocks of ``n`` output features, bit for bit."""
    layout = layout_of(encoding)
    blocks, spans, _ = packed.shape
    rows = np.empty((blocks, COLUMNS, spans, encoding.block_size), np.uint8)
    in_parts(
        blocks,
        _step(spans * encoding.block_size),
        lambda part: _transpose_out(packed[part], layout, rows[part]),
    )
    return rows.reshape(blocks * COLUMNS, -1)[:n]


def _step(row_bytes: int) -> int:
    return max(1, CHUNK // max(1, row_bytes * COLUMNS))


def _transpose_in(rows: UInt8, layout: RecordLayout, out: UInt8) -> None:
    """Fill records ``[blocks, spans, bytes]`` from ``[blocks, columns, spans, block bytes]``."""
    fields = _to_record(layout.encoding, _block_fields(rows, layout.encoding))
    for field in layout.fields:
        pieces = _by_column(fields[field.name], field)
        for at, start in enumerate(layout.starts[field.name]):
            np.copyto(_piece(out, field, start), pieces[..., at])


def _transpose_out(packed: UInt8, layout: RecordLayout, rows: UInt8) -> None:
    """Undo :func:`_transpose_in`."""
    fields = {}
    for field in layout.fields:
        pieces = [_piece(packed, field, start) for start in layout.starts[field.name]]
        fields[field.name] = np.stack(pieces, axis=-1).swapaxes(1, 2).copy().view(np.uint8)
    blocks = _from_record(layout.encoding, fields)
    for name, values in _block_fields(rows, layout.encoding).items():
        np.copyto(values, blocks[name])


def _block_fields(rows: UInt8, encoding: QuantizationEncoding) -> Fields:
    """Views of the fields of blocks ``[..., block bytes]``, as bytes ``[..., bytes]``."""
    dtype = CODECS[encoding].layout
    places = {name: field[:2] for name, field in (dtype.fields or {}).items()}
    return {name: rows[..., at : at + part.itemsize] for name, (part, at) in places.items()}


def _by_column(values: UInt8, field: Field) -> NDArray[Any]:
    """Bytes ``[blocks, columns, spans, bytes]`` as ``[blocks, spans, columns, pieces]``."""
    return np.ascontiguousarray(values).view(_lane_type(field)).swapaxes(1, 2)


def _piece(packed: UInt8, field: Field, start: int) -> NDArray[Any]:
    """View of a piece of records, ``[blocks, spans, columns]``."""
    return packed[..., start : start + field.size].view(_lane_type(field))


def _lane_type(field: Field) -> np.dtype[Any]:
    """An integer as wide as the bytes of one column that are neighbours."""
    return np.dtype(f"<u{field.lane * field.itemsize}")


def _clear(block: UInt8, layout: RecordLayout, columns: int) -> None:
    """Set the columns from a number on to zero, whatever zero scales became in a record."""
    for field in layout.fields:
        for start in layout.starts[field.name]:
            _piece(block, field, start)[..., columns:] = 0


def _to_record(encoding: QuantizationEncoding, fields: Fields) -> Fields:
    """The fields of a record from those of a block."""
    change = CHANGED.get(encoding)
    return fields if change is None else fields | change.to_record(fields)


def _from_record(encoding: QuantizationEncoding, fields: Fields) -> Fields:
    """The fields of a block from those of a record."""
    change = CHANGED.get(encoding)
    return fields if change is None else fields | change.from_record(fields)


def _widen_pairs(fields: Fields) -> Fields:
    scales, minima = s.scales_and_minima(fields["scales"])
    return {"scales": scales, "minima": minima}


def _narrow_pairs(fields: Fields) -> Fields:
    return {"scales": s.from_scales_and_minima(fields["scales"], fields["minima"])}


def _widen_eight(fields: Fields) -> Fields:
    return {"scales": s.eight_scales(fields["scales_l"], fields["scales_h"])}


def _narrow_eight(fields: Fields) -> Fields:
    low, high = s.from_eight_scales(fields["scales"])
    return {"scales_l": low, "scales_h": high}


class _Change(NamedTuple):
    """Fields of a record computed from those of a block, and what undoes that."""

    to_record: Callable[[Fields], Fields]
    from_record: Callable[[Fields], Fields]


def _of_one(
    name: str, widen: Callable[[UInt8], UInt8], narrow: Callable[[UInt8], UInt8]
) -> _Change:
    """A change of one field, which has the same name in both."""
    return _Change(
        lambda fields: {name: widen(fields[name])}, lambda fields: {name: narrow(fields[name])}
    )


_BITS = _of_one("qh", s.transposed_bits, s.from_transposed_bits)
_PAIRS = _Change(_widen_pairs, _narrow_pairs)
# Encodings whose blocks have other fields than their records.
CHANGED = {
    E.Q5_0: _BITS,
    E.Q5_1: _BITS,
    E.Q3_K: _of_one("scales", s.sixteen_scales, s.from_sixteen_scales),
    E.Q4_K: _PAIRS,
    E.Q5_K: _PAIRS,
    E.IQ4_XS: _Change(_widen_eight, _narrow_eight),
}
