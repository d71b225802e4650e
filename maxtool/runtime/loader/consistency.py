"""Checks of a manifest against itself: each part may be well-formed and the whole absurd.

Compiled code checks the types and shapes of all that it is given, and nothing of its values: at
which position a call writes, and which row of a table a number means, is bounded by the loader
alone. So the bounds follow from the shapes here, whoever wrote them down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from .errors import BadInput
from .manifest_parts import ManifestParts
from .specs import ALIGNMENT, DTYPES, Entry, Input, Stored, Table

Rule: TypeAlias = Callable[[ManifestParts], Iterator[str]]

MAX_BYTES = 1 << 48
SETTINGS = 5
CONTEXT, EMBED, PREFILL = "context", "embed", "prefill"
# Entries that draw tokens by themselves, and what they take and give: names, types, numbers of
# dimensions.
SAMPLED = {"sample_prefill", "sample_decode"}
DRAWING = ("token int64 2", "position int32 1", "draws float32 1", "settings float32 1")


def check_consistent(manifest: ManifestParts) -> None:
    """Refuse a manifest that contradicts itself, or the files beside it.

    Raises:
        BadInput: Listing what the first rule found that is broken.
    """
    for rule in RULES:
        if problems := list(rule(manifest)):
            what = "the manifest contradicts itself or its files"
            hint = "copy the folder again, or compile the model again"
            raise BadInput(what, file=manifest.path, problems=problems, hint=hint)


def _listed(manifest: ManifestParts) -> Iterator[str]:
    """Every file that is used has a checksum."""
    used = (manifest.module, *manifest.weights_files)
    for path in filter(None, (*used, manifest.tokenizer_file, manifest.chat_template)):
        if path not in manifest.files:
            yield f"'files' does not list {path.name}"


def _laid_out(manifest: ManifestParts) -> Iterator[str]:
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


def _packed(manifest: ManifestParts) -> Iterator[str]:
    """A weight that is packed has as many blocks as its rows take."""
    for spec in manifest.weights:
        if spec.unpacked is not None and not _is_packing(spec, spec.unpacked):
            yield f"{spec} holds no weight of the shape {list(spec.unpacked)}"


def _is_packing(spec: Stored, shape: tuple[int, ...]) -> bool:
    if len(shape) < 2 or len(spec.shape) != len(shape) + 1:
        return False
    *outer, rows, inner = shape
    columns = spec.sizes({})[-1]
    return spec.sizes({}) == (*outer, -(-rows // columns), inner, columns)


def _affordable(manifest: ManifestParts) -> Iterator[str]:
    """No buffer is larger than any memory."""
    for spec in manifest.state:
        if spec.nbytes() > MAX_BYTES:
            yield f"{spec} of the state takes {spec.nbytes()} bytes"


def _placed(manifest: ManifestParts) -> Iterator[str]:
    """The state has a place for each position of the context, and for no other."""
    for spec in manifest.state:
        axis = spec.positions
        if axis is None:
            continue
        if not 0 <= axis < len(spec.shape) or spec.shape[axis] != manifest.context:
            context = f"a context of {manifest.context}"
            yield f"{spec} of the state is not for {context}, along axis {axis}"
    if manifest.reread_beyond is not None and manifest.reread_beyond >= (manifest.context or 0):
        what = f"'reread_beyond' is {manifest.reread_beyond}"
        yield f"{what}, and the context {manifest.context}"


def _stateful(manifest: ManifestParts) -> Iterator[str]:
    """An entry that writes the state says where, and how much: the position is checked."""
    named = {size for spec in manifest.state for size in spec.names}
    for name, entry in manifest.entries.items():
        if not entry.state:
            continue
        position = next((spec for spec in entry.inputs if spec.name == "position"), None)
        ids = entry.ids
        if not ids or len(ids.shape) != 2 or not position or position.shape != (1,):
            yield f"{name!r} has state, but not input_ids[batch, seq] and position[1]"
        if manifest.context is None:
            yield f"{name!r} has state, but there is no context"
        if missing := named - {size for spec in entry.inputs for size in spec.names}:
            yield f"no input of {name!r} has the sizes {', '.join(sorted(missing)):.80}"


def _bounded(manifest: ManifestParts) -> Iterator[str]:
    """Token ids and their number have limits, in every entry that takes them."""
    for name, entry in manifest.entries.items():
        yield from _kinds(manifest, entry)
        ids = entry.ids
        if ids is None:
            continue
        values = manifest.limits.get(ids.name)
        if not isinstance(values, tuple) or values[0] < 0:
            yield f"{name!r} takes {ids}, whose values have no limit in 'limits'"
        length = ids.shape[1] if len(ids.shape) > 1 else None
        if isinstance(length, str) and not _fits(manifest, length):
            context = f"a context of {manifest.context}"
            yield f"{name!r} takes {ids}, and the limit of {length} is not in {context}"


def _kinds(manifest: ManifestParts, entry: Entry) -> Iterator[str]:
    """A dimension is limited by a number, an input by two."""
    sizes = {size for spec in entry.inputs for size in spec.names}
    inputs = {spec.name for spec in entry.inputs}
    for name, limit in manifest.limits.items():
        if name in sizes - inputs and isinstance(limit, tuple):
            yield f"the limit of the dimension {name!r} is {list(limit)}"
        if name in inputs - sizes and isinstance(limit, int):
            yield f"the limit of the values of {name!r} is {limit}"


def _fits(manifest: ManifestParts, dim: str) -> bool:
    """Whether a dimension has a limit, and one that the context can hold."""
    limit = manifest.limits.get(dim)
    if not isinstance(limit, int):
        return False
    return manifest.context is None or limit <= manifest.context


def _indexed(manifest: ManifestParts) -> Iterator[str]:
    """No number that a caller may give means a row behind the last of its table."""
    weights = {spec.name: spec for spec in manifest.weights}
    for table in manifest.tables:
        last = _last(manifest, table)
        if table.weight not in weights or table.skipped < 0 or last is None:
            yield f"'tables' has {table.weight!r:.80}, read by {table.index!r:.80}"
            continue
        rows = next(iter(weights[table.weight].logical), 0)
        if last + table.skipped >= rows:
            row = f"row {last + table.skipped} of {table.weight}"
            yield f"{row} can be asked for by {table.index}, and it has {rows}"


def _last(manifest: ManifestParts, table: Table) -> int | None:
    """The largest number that a row is asked for by."""
    if table.index == CONTEXT:
        return None if manifest.context is None else manifest.context - 1
    limit = manifest.limits.get(table.index)
    return limit[1] if isinstance(limit, tuple) else None


def _filled(manifest: ManifestParts) -> Iterator[str]:
    """Check that a default is a value that its input may have, of a size that other inputs say."""
    for name, entry in manifest.entries.items():
        given = {size for spec in entry.inputs if spec.default is None for size in spec.names}
        for spec in entry.inputs:
            if spec.default is not None and not (_is_value(manifest, spec) and spec.names <= given):
                yield f"{name!r} takes {spec}, which cannot be filled in"


def _is_value(manifest: ManifestParts, spec: Input) -> bool:
    """Whether a default is a value that may be given."""
    dtype, limit = DTYPES[spec.dtype], manifest.limits.get(spec.name)
    if spec.default is None or spec.dtype == "bfloat16":
        return False
    if isinstance(limit, tuple):
        return limit[0] <= spec.default <= limit[1]
    if dtype.kind in "iu":
        return bool(np.iinfo(dtype).min <= spec.default <= np.iinfo(dtype).max)
    return spec.default in (0, 1)


def _drawing(manifest: ManifestParts) -> Iterator[str]:
    """Nothing else checks what entries that draw tokens are called with."""
    found = SAMPLED & manifest.entries.keys()
    if found and not {*SAMPLED, PREFILL} <= manifest.entries.keys():
        yield f"{', '.join(sorted(found))} without the entries that go with it"
    for name in found:
        yield from _draws(manifest, name, manifest.entries[name])


def _draws(manifest: ManifestParts, name: str, entry: Entry) -> Iterator[str]:
    inputs, outputs = (
        tuple(f"{s.name} {s.dtype} {len(s.shape)}" for s in side)
        for side in (entry.inputs, entry.outputs)
    )
    if not entry.state or (inputs, outputs) != (DRAWING, DRAWING[:2]):
        yield f"{name!r} is not from {', '.join(DRAWING)}, and the state"
        return
    sizes = entry.inputs[2].shape + entry.inputs[3].shape
    if sizes != (manifest.context, SETTINGS):
        yield f"{name!r} has no draws[context] and settings[{SETTINGS}]"
    yield from _remembers(manifest, name)


def _remembers(manifest: ManifestParts, name: str) -> Iterator[str]:
    """Check that the state records, for each token that may be in a text, whether it was in it."""
    seen = next((spec for spec in manifest.state if spec.name == "seen"), None)
    limit = manifest.limits.get("input_ids")
    tokens = limit[1] + 1 if isinstance(limit, tuple) else None
    if seen is None or len(seen.shape) != 2 or seen.shape[1] != tokens:
        yield f"{name!r} has no seen[batch, {tokens}] in the state"


def _embedding(manifest: ManifestParts) -> Iterator[str]:
    """Vectors are made from token ids and a mask, and nothing else that must be given."""
    entry = manifest.entries.get(EMBED)
    if entry is None:
        return
    must = {spec.name for spec in entry.inputs if spec.default is None}
    known = {"input_ids", "attention_mask"}
    if not must <= known <= {spec.name for spec in entry.inputs}:
        yield f"{EMBED!r} is not from input_ids and attention_mask"
    given = [(spec.name, tuple(map(type, spec.shape[1:]))) for spec in entry.outputs]
    if given != [("embeddings", (int,))]:
        yield f"{EMBED!r} does not give embeddings[batch, size] alone"


# In this order: what one relies on is checked by those before it.
RULES: tuple[Rule, ...] = (
    _listed,
    _laid_out,
    _packed,
    _affordable,
    _placed,
    _stateful,
    _bounded,
    _indexed,
    _filled,
    _drawing,
    _embedding,
)
