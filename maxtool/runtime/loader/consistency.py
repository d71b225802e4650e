"""Checks of a manifest against itself: each part may be well-formed and the whole absurd.

Compiled code checks the types and shapes of all that it is given, and nothing of its values: which
row of a table a number means is bounded by the loader alone. So the bounds follow from the shapes
here, whoever wrote them down. What bounds a model of text is in ``text_entries.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from .class_entries import CLASS_RULES
from .dual_encoder_entries import DUAL_ENCODER_RULES
from .errors import BadInput
from .image_entries import IMAGE_RULES
from .image_tokens import IMAGE_TOKEN_RULES
from .manifest_parser import ManifestParser
from .manifest_rule import Rule
from .rewriting_entries import REWRITING_RULES
from .specs import (
    ALIGNMENT,
    BITS,
    COLUMNS,
    DTYPES,
    DUAL_ENCODER,
    IMAGE,
    RECORDS,
    EntrySpec,
    InputSpec,
    TableSpec,
    WeightSpec,
    is_name,
)
from .speech_entries import SPEECH_RULES
from .text_entries import TEXT_RULES

MAX_BYTES = 1 << 48
CONTEXT = "context"


def check_consistent(manifest: ManifestParser) -> None:
    """Refuse a manifest that contradicts itself, or the files beside it, by the first rule."""
    for rule in RULES:
        if problems := list(rule(manifest)):
            what = "the manifest contradicts itself or its files"
            hint = "copy the folder again, or compile the model again"
            raise BadInput(what, file=manifest.path, problems=problems, hint=hint)


def _listed(manifest: ManifestParser) -> Iterator[str]:
    """Every file that is used has a checksum."""
    used = (manifest.module, *manifest.weights_files)
    for path in filter(None, (*used, manifest.tokenizer_file, manifest.chat_template)):
        if path not in manifest.files:
            yield f"'files' does not list {path.name}"


def _laid_out(manifest: ManifestParser) -> Iterator[str]:
    """The weights follow each other, each at the next multiple of the alignment."""
    end = 0
    for spec in manifest.weights:
        start = end + -end % ALIGNMENT
        end = start + spec.nbytes()
        if spec.names or spec.offset != start:
            yield f"{spec} is at byte {spec.offset}, and can only be at {start}"
            return
    for file in manifest.weights_files:
        if (missing := end - manifest.stamps[file][0]) > 0:
            yield f"{file.name} was cut short: {missing} of {end} bytes are missing"


def _packed(manifest: ManifestParser) -> Iterator[str]:
    """A weight that is packed has as many blocks as its rows take, and whole ones if quantized."""
    for spec in manifest.weights:
        if spec.encoding is not None and spec.unpacked is None:
            yield f"{spec} holds {spec.encoding} blocks of a weight of no shape"
        elif spec.unpacked is not None and not _is_packing(spec, spec.unpacked):
            yield f"{spec} holds no weight of the shape {list(spec.unpacked)}"


def _is_packing(spec: WeightSpec, shape: tuple[int, ...]) -> bool:
    if len(shape) < 2 or not 1 <= len(spec.shape) - len(shape) <= 2:
        return False
    *outer, rows, inner = shape
    if spec.encoding is not None:
        elements, record = RECORDS[spec.encoding]
        blocks, rest = divmod(inner, elements)
        whole = spec.dtype == "uint8" and not rest
        return whole and spec.sizes({}) == (*outer, -(-rows // COLUMNS), blocks, record)
    columns, *several = spec.sizes({})[len(shape) :]
    steps = -(-inner // several[0]) if several else inner
    return spec.sizes({}) == (*outer, -(-rows // columns), steps, columns, *several)


def _affordable(manifest: ManifestParser) -> Iterator[str]:
    """Yield buffers that are larger than any memory."""
    for spec in manifest.state:
        if spec.nbytes() > MAX_BYTES:
            yield f"{spec} of the state takes {spec.nbytes()} bytes"


def _placed(manifest: ManifestParser) -> Iterator[str]:
    """The state has a place for each position of the context, or for those that are kept."""
    for spec in manifest.state:
        axis = spec.positions
        if axis is None:
            continue
        rooms = {manifest.context, manifest.kept_positions or manifest.context}
        if not 0 <= axis < len(spec.shape) or spec.shape[axis] not in rooms:
            context = f"a context of {manifest.context}"
            yield f"{spec} of the state is not for {context}, along axis {axis}"
    if manifest.is_recurrent and all(spec.positions is not None for spec in manifest.state):
        yield "'is_recurrent' is set, and no part of the state is of all tokens"
    for name in ("reread_beyond", "read_whole_beyond", "kept_positions"):
        count = getattr(manifest, name)
        if count is not None and count >= (manifest.context or 0):
            yield f"{name!r} is {count}, and the context {manifest.context}"


def _named(manifest: ManifestParser) -> Iterator[str]:
    """Check that arrays can be written to a file, and printed, by their names."""
    for name, entry in manifest.entries.items():
        for spec in (*entry.inputs, *entry.outputs):
            if not is_name(spec.name):
                yield f"{spec.name!r:.80} of {name!r:.80} is not the name of an array"


def _stateless(manifest: ManifestParser) -> Iterator[str]:
    """A model without a text has no state: nothing would bound where it is written."""
    stateful = [name for name, entry in manifest.entries.items() if entry.state]
    if manifest.task in (None, IMAGE, DUAL_ENCODER) and (stateful or manifest.state):
        yield f"there is no text, and state: {', '.join(stateful):.80}"


def _limited(manifest: ManifestParser) -> Iterator[str]:
    """Limits are of the kind that a dimension or an input has, and can be met."""
    for name, entry in manifest.entries.items():
        yield from _kinds(manifest, entry)
        for spec in entry.inputs:
            values = manifest.limits.get(spec.name)
            if isinstance(values, tuple) and not _holds(spec, values):
                yield f"{spec} is limited to the values {values[0]} to {values[1]}"
        sizes = {size for spec in entry.inputs for size in spec.names}
        for dim, size in entry.least.items():
            limit = manifest.limits.get(dim)
            if dim not in sizes or (isinstance(limit, int) and limit < size):
                yield f"{name!r} needs {dim!r:.80} to be at least {size}"


def _kinds(manifest: ManifestParser, entry: EntrySpec) -> Iterator[str]:
    """A dimension is limited by a number, an input by two."""
    sizes = {size for spec in entry.inputs for size in spec.names}
    inputs = {spec.name for spec in entry.inputs}
    for name, limit in manifest.limits.items():
        if name in sizes - inputs and isinstance(limit, tuple):
            yield f"the limit of the dimension {name!r} is {list(limit)}"
        if name in inputs - sizes and isinstance(limit, int):
            yield f"the limit of the values of {name!r} is {limit}"


def _indexed(manifest: ManifestParser) -> Iterator[str]:
    """Yield inputs whose limits let a number mean a row that is not in its table."""
    weights = {spec.name: spec for spec in manifest.weights}
    for table in manifest.tables:
        numbers = _numbers(manifest, table)
        if table.weight not in weights or table.skipped < 0 or numbers is None:
            yield f"'tables' has {table.weight!r:.80}, read by {table.index!r:.80}"
            continue
        first, last = numbers
        rows = next(iter(weights[table.weight].logical), 0)
        if last + table.skipped >= rows:
            row = f"row {last + table.skipped} of {table.weight}"
            yield f"{row} can be asked for by {table.index}, and it has {rows}"
        if first < 0:
            yield f"{table.index} can be {first}, and {table.weight} has no row before number 0"


def _numbers(manifest: ManifestParser, table: TableSpec) -> tuple[int, int] | None:
    """The least and the largest number that a row is asked for by."""
    if table.index == CONTEXT:
        return None if manifest.context is None else (0, manifest.context - 1)
    limit = manifest.limits.get(table.index)
    return limit if isinstance(limit, tuple) else None


def _filled(manifest: ManifestParser) -> Iterator[str]:
    """Check that a default is a value that its input may have, of a size that other inputs say."""
    for name, entry in manifest.entries.items():
        filled = {size for spec in entry.inputs if spec.default is None for size in spec.names}
        for spec in entry.inputs:
            if spec.default is not None and not (
                _is_value(manifest, spec, spec.default) and spec.names <= filled
            ):
                yield f"{name!r} takes {spec}, which cannot be filled in"


def _is_value(manifest: ManifestParser, spec: InputSpec, default: int) -> bool:
    """Return whether a default is a value that may be given."""
    limit = manifest.limits.get(spec.name)
    if isinstance(limit, tuple):
        return limit[0] <= default <= limit[1]
    if DTYPES[spec.dtype].kind == "f":
        return default in (0, 1)
    return _holds(spec, (default,))


def _holds(spec: InputSpec, values: Iterable[int]) -> bool:
    """Return whether an input is of whole numbers, or truth values, and can have these."""
    dtype = DTYPES[spec.dtype]
    if spec.dtype in BITS or dtype.kind == "f":
        return False
    least, largest = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return all(least <= value <= largest for value in values)


# In this order: what one relies on is checked by those before it.
RULES: tuple[Rule, ...] = (
    _listed,
    _named,
    _laid_out,
    _packed,
    _affordable,
    _placed,
    _stateless,
    _limited,
    _indexed,
    _filled,
    *TEXT_RULES,
    *IMAGE_RULES,
    *IMAGE_TOKEN_RULES,
    *DUAL_ENCODER_RULES,
    *CLASS_RULES,
    *SPEECH_RULES,
    *REWRITING_RULES,
)
