"""Entries of models that write a text behind another: what they take and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from .manifest_parser import ManifestParser
from .specs import ENCODE, SOURCE_LENGTH, TEXT_TO_TEXT, EntrySpec

Rule: TypeAlias = Callable[[ManifestParser], Iterator[str]]

# What the steps take, and what the source is: names, types, numbers of dimensions.
STEP = ("input_ids int64 2", "position int32 1", f"{SOURCE_LENGTH} int32 1")
TAKEN = {ENCODE: STEP[:1], "prefill": STEP, "decode": STEP}


def _steps(manifest: ManifestParser) -> Iterator[str]:
    """Sources are encoded, and steps that give logits follow, all on one state."""
    for name, taken in TAKEN.items():
        entry = manifest.entries.get(name)
        if entry is None:
            yield f"the task is {TEXT_TO_TEXT!r}, and there is no entry {name!r}"
        elif not entry.state:
            yield f"{name!r} has no state"
        else:
            yield from _takes(name, entry, taken)
    if manifest.batch > 1:
        yield f"the task is {TEXT_TO_TEXT!r}, and the state has {manifest.batch} slots"


def _takes(name: str, entry: EntrySpec, taken: tuple[str, ...]) -> Iterator[str]:
    inputs = tuple(f"{spec.name} {spec.dtype} {len(spec.shape)}" for spec in entry.inputs)
    if inputs != taken or any(spec.shape != (1,) for spec in entry.inputs[1:]):
        yield f"{name!r} is not from {', '.join(taken)} alone"
    outputs = [(spec.name, tuple(map(type, spec.shape))) for spec in entry.outputs]
    if name != ENCODE and outputs != [("logits", (str, int))]:
        yield f"{name!r} does not give logits[batch, tokens] alone"


def _bounded(manifest: ManifestParser) -> Iterator[str]:
    """Check that no source is longer than what the state has room for, and all tokens exist."""
    context = manifest.context
    if manifest.limits.get(SOURCE_LENGTH) != (1, context):
        yield f"the limits of {SOURCE_LENGTH!r} are not 1 to {context}"
    values = [spec for spec in manifest.state if spec.name.endswith(".source_value")]
    if not values or any(len(v.shape) != 4 or v.shape[2] != context for v in values):
        yield f"the state has no room for {context} positions of a source"
    limit = manifest.limits.get("input_ids")
    count = limit[1] + 1 if isinstance(limit, tuple) else 0
    logits = {manifest.entries[name].outputs[0].shape[-1] for name in TAKEN if name != ENCODE}
    if manifest.writing is not None and (
        max(manifest.writing.tokens) >= count or logits != {count}
    ):
        yield f"'writing' names token {max(manifest.writing.tokens)}, of {count}"


def _for_sources(rule: Rule) -> Rule:
    return lambda manifest: rule(manifest) if manifest.task == TEXT_TO_TEXT else iter(())


REWRITING_RULES: tuple[Rule, ...] = (_for_sources(_steps), _for_sources(_bounded))
