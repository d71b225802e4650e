"""Entries of models of text: what bounds token ids, positions and the state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .errors import DoesNotFit
from .manifest_parser import ManifestParser
from .manifest_rule import for_tasks
from .memory import Array
from .specs import (
    DUAL_ENCODER,
    EMBED,
    ENCODE,
    GENERATE,
    LOOK,
    TEXT_TO_TEXT,
    TRANSCRIBE,
    ArraySpec,
    EntrySpec,
    InputSpec,
)

IDS = ("input_ids", "token")
SOURCED = (TRANSCRIBE, TEXT_TO_TEXT)  # tasks of models with an encoder behind which texts begin
SETTINGS = 5
# Tasks of models that read texts, and of those that make vectors of them.
EMBEDDING = (EMBED, DUAL_ENCODER)
OF_TEXTS = (GENERATE, *SOURCED, *EMBEDDING)
PREFILL = "prefill"
SLOT = "slot"
# What entries take whose state has slots: names, types, numbers of dimensions.
SLOTTED = ("input_ids int64 2", "position int32 1", "slot int32 1")
# Entries that draw tokens by themselves, and what they take and give: names, types, numbers of
# dimensions.
SAMPLED = {"sample_prefill", "sample_decode"}
DRAWING = ("token int64 2", "position int32 1", "draws float32 1", "settings float32 1")


def ids_of(entry: EntrySpec) -> InputSpec | None:
    """The input of token ids: one of those the next position follows from."""
    return next((spec for spec in entry.inputs if spec.name in IDS), None)


def reads_source(manifest: ManifestParser, entry: EntrySpec) -> bool:
    """Return whether an entry writes what an encoder gives into the state, and no text."""
    return manifest.task in SOURCED and entry is manifest.entries.get(ENCODE)


class Span(NamedTuple):
    """Positions of the tokens of one text: the first, and that behind the last."""

    slot: int  # where the state holds the text
    first: int
    end: int


def check_position(manifest: ManifestParser, entry: EntrySpec, inputs: Mapping[str, Array]) -> None:
    """Refuse positions outside the state, and two rows that would write into one slot."""
    if not entry.state or manifest.context is None or reads_source(manifest, entry):
        return
    spans = spans_of(entry, inputs)
    for span in spans:
        if span.first < 0 or span.end > manifest.context:
            what = f"position {span.first} and {span.end - span.first} tokens"
            raise DoesNotFit(f"{what} go beyond the context of {manifest.context}")
    slots = [span.slot for span in spans]
    if len({*slots}) < len(slots):
        twice = next(slot for slot in slots if slots.count(slot) > 1)
        raise DoesNotFit(f"slot {twice} is named twice")


def spans_of(entry: EntrySpec, inputs: Mapping[str, Array]) -> list[Span]:
    """The writes of a call: the positions of its tokens, for each slot that it names."""
    ids, positions = ids_of(entry), inputs["position"].tolist()
    # What has no ids gives a vector for each token.
    length = int(entry.outputs[0].shape[1]) if ids is None else inputs[ids.name].shape[1]
    slots = inputs[SLOT].tolist() if SLOT in inputs else [0]
    pairs = zip(slots, positions, strict=True)
    return [Span(slot, first, first + length) for slot, first in pairs]


def _stateful(manifest: ManifestParser) -> Iterator[str]:
    """An entry that writes the state says where, and how much: the position is checked."""
    named = {size for spec in manifest.state for size in spec.names}
    for name, entry in manifest.entries.items():
        is_elsewhere = reads_source(manifest, entry) or (name, manifest.task) == (LOOK, GENERATE)
        if not entry.state or is_elsewhere:
            continue
        if manifest.batch > 1 or any(spec.name == SLOT for spec in entry.inputs):
            yield from _slotted(manifest, name, entry)
            continue
        position = next((spec for spec in entry.inputs if spec.name == "position"), None)
        ids = ids_of(entry)
        if not ids or len(ids.shape) != 2 or not position or position.shape != (1,):
            yield f"{name!r} has state, but not input_ids[batch, seq] and position[1]"
        if manifest.context is None:
            yield f"{name!r} has state, but there is no context"
        if missing := named - {size for spec in entry.inputs for size in spec.names}:
            yield f"no input of {name!r} has the sizes {', '.join(sorted(missing)):.80}"


def _slotted(manifest: ManifestParser, name: str, entry: EntrySpec) -> Iterator[str]:
    """Check an entry whose rows say in which slot of the state they are, and where there.

    The order counts: compiled code knows its inputs by nothing else, and positions from slots.
    """
    inputs = tuple(f"{spec.name} {spec.dtype} {len(spec.shape)}" for spec in entry.inputs)
    if manifest.context is None or inputs != SLOTTED:
        yield f"{name!r} has slots, but not a context and {', '.join(SLOTTED)}"
    elif len({spec.shape[0] for spec in entry.inputs}) > 1:
        yield f"{name!r} does not take a position and a slot for each row of input_ids"
    if manifest.limits.get(SLOT) != (0, manifest.batch - 1):
        yield f"{name!r} takes slots whose limits are not 0 to {manifest.batch - 1}"
    for spec in manifest.state:
        if spec.names or spec.shape[:1] != (manifest.batch,):
            yield f"{spec} of the state has not {manifest.batch} slots"


def _bounded(manifest: ManifestParser) -> Iterator[str]:
    """Token ids and their number have limits, in every entry that takes them."""
    for name, entry in manifest.entries.items():
        ids = ids_of(entry)
        if ids is None:
            continue
        values = manifest.limits.get(ids.name)
        if not isinstance(values, tuple) or values[0] < 0:
            yield f"{name!r} takes {ids}, whose values have no limit in 'limits'"
        length = ids.shape[1] if len(ids.shape) > 1 else None
        most = manifest.limits.get(length) if isinstance(length, str) else 1
        if not isinstance(most, int) or most > (manifest.context or most):
            context = f"a context of {manifest.context}"
            yield f"{name!r} takes {ids}, and the limit of {length} is not in {context}"


def _drawing(manifest: ManifestParser) -> Iterator[str]:
    """Yield mistakes in the entries that draw tokens, whose arguments nothing else checks."""
    drawing = SAMPLED & manifest.entries.keys()
    if drawing and not {*SAMPLED, PREFILL} <= manifest.entries.keys():
        yield f"{', '.join(sorted(drawing))} without the entries that go with it"
    for name in drawing:
        yield from _draws(manifest, name, manifest.entries[name])


def _draws(manifest: ManifestParser, name: str, entry: EntrySpec) -> Iterator[str]:
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


def _remembers(manifest: ManifestParser, name: str) -> Iterator[str]:
    """Check that the state records, for each token that may be in a text, whether it was in it."""
    seen = next((spec for spec in manifest.state if spec.name == "seen"), None)
    limit = manifest.limits.get("input_ids")
    tokens = limit[1] + 1 if isinstance(limit, tuple) else None
    if seen is None or len(seen.shape) != 2 or seen.shape[1] != tokens:
        yield f"{name!r} has no seen[batch, {tokens}] in the state"


def _embedding(manifest: ManifestParser) -> Iterator[str]:
    """Vectors are made from token ids and a mask, and nothing else that must be given."""
    entry = manifest.entries.get(EMBED)
    if entry is None:
        yield f"the task is {manifest.task!r}, and there is no entry {EMBED!r}"
        return
    must = {spec.name for spec in entry.inputs if spec.default is None}
    known = {"input_ids", "attention_mask"}
    if not must <= known <= {spec.name for spec in entry.inputs}:
        yield f"{EMBED!r} is not from input_ids and attention_mask"
    limits = {manifest.limits.get(str(spec.shape[-1])) for spec in entry.inputs if spec.shape}
    if limits != {manifest.context}:
        yield f"{EMBED!r} takes other lengths than the context of {manifest.context}"
    results = [(spec.name, tuple(map(type, spec.shape[1:]))) for spec in entry.outputs]
    if results != [("embeddings", (int,))]:
        yield f"{EMBED!r} does not give embeddings[batch, size] alone"


def _filled_up(manifest: ManifestParser) -> Iterator[str]:
    """Texts are filled up to no more than the context, with a token that there is."""
    if (filled := manifest.filled) is None:
        return
    limit = manifest.limits.get("input_ids")
    if not isinstance(limit, tuple) or not limit[0] <= filled.token <= limit[1]:
        yield f"texts are filled up with token {filled.token}, which is none of {limit}"
    if filled.length > (manifest.context or 0):
        yield f"texts are filled up to {filled.length}, and the context is {manifest.context}"


def _left_out(manifest: ManifestParser) -> Iterator[str]:
    """Tokens that are left out of texts are some that there are logits of."""
    most = max((*manifest.unwritten.ever, *manifest.unwritten.first), default=-1)
    for name, entry in manifest.entries.items():
        for spec in entry.outputs:
            if spec.name == "logits" and not most < _last(spec):
                yield f"token {most} is not written, and {name!r} gives {spec}"


def _last(spec: ArraySpec) -> int:
    """The last dimension of an output; 0 where it varies."""
    size = spec.shape[-1] if spec.shape else 0
    return size if isinstance(size, int) else 0


TEXT_RULES = (
    *for_tasks(OF_TEXTS, _stateful, _bounded),
    *for_tasks({GENERATE}, _drawing, _left_out),
    *for_tasks(EMBEDDING, _embedding),
    *for_tasks(OF_TEXTS, _filled_up),
)
