"""Entries of models that write a text behind another: what they take and give."""

from __future__ import annotations

from collections.abc import Iterator

from .manifest_parser import ManifestParser
from .manifest_rule import for_tasks
from .source_entries import STEPS, gives_logits, named_tokens, source_and_steps
from .specs import ENCODE, SOURCE_LENGTH, TEXT_TO_TEXT, EntrySpec

# What the steps take, and what the source is: names, types, numbers of dimensions.
STEP = ("input_ids int64 2", "position int32 1", f"{SOURCE_LENGTH} int32 1")
TAKEN = {ENCODE: STEP[:1], **dict.fromkeys(STEPS, STEP)}


def _steps(manifest: ManifestParser) -> Iterator[str]:
    """Sources are encoded, and steps that give logits follow."""
    return source_and_steps(manifest, _shaped)


def _shaped(name: str, entry: EntrySpec) -> Iterator[str]:
    inputs = tuple(f"{spec.name} {spec.dtype} {len(spec.shape)}" for spec in entry.inputs)
    if inputs != TAKEN[name] or any(spec.shape != (1,) for spec in entry.inputs[1:]):
        yield f"{name!r} is not from {', '.join(TAKEN[name])} alone"
    if name != ENCODE:
        yield from gives_logits(name, entry)


def _bounded(manifest: ManifestParser) -> Iterator[str]:
    """Check that no source is longer than what the state has room for, and all tokens exist."""
    context = manifest.context
    if manifest.limits.get(SOURCE_LENGTH) != (1, context):
        yield f"the limits of {SOURCE_LENGTH!r} are not 1 to {context}"
    values = [spec for spec in manifest.state if spec.name.endswith(".source_value")]
    if not values or any(len(v.shape) != 4 or v.shape[2] != context for v in values):
        yield f"the state has no room for {context} positions of a source"
    if manifest.writing is not None:
        yield from named_tokens(manifest, "writing", manifest.writing.tokens)


REWRITING_RULES = for_tasks((TEXT_TO_TEXT,), _steps, _bounded)
