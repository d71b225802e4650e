"""Entries of models that read a source and then write: what the models of all sources share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from .manifest_parser import ManifestParser
from .specs import ENCODE, EntrySpec

STEPS = ("prefill", "decode")


def source_and_steps(
    manifest: ManifestParser, check: Callable[[str, EntrySpec], Iterator[str]]
) -> Iterator[str]:
    """Sources are encoded, and steps that give logits follow, all on the state of one text.

    Yields what is wrong, and what ``check`` finds wrong with each entry.
    """
    for name in (ENCODE, *STEPS):
        entry = manifest.entries.get(name)
        if entry is None:
            yield f"the task is {manifest.task!r}, and there is no entry {name!r}"
        elif not entry.state:
            yield f"{name!r} has no state"
        else:
            yield from check(name, entry)
    if manifest.batch > 1:
        yield f"the task is {manifest.task!r}, and the state has {manifest.batch} slots"


def gives_logits(name: str, entry: EntrySpec) -> Iterator[str]:
    """Yield what is wrong where a step does not give a row of logits for each text."""
    outputs = [(spec.name, tuple(map(type, spec.shape))) for spec in entry.outputs]
    if outputs != [("logits", (str, int))]:
        yield f"{name!r} does not give logits[batch, tokens] alone"


def named_tokens(manifest: ManifestParser, what: str, tokens: Iterable[int]) -> Iterator[str]:
    """Yield what is wrong where one of the tokens that ``what`` names is none of the model's."""
    limit = manifest.limits.get("input_ids")
    count = limit[1] + 1 if isinstance(limit, tuple) else 0
    logits = {manifest.entries[name].outputs[0].shape[-1] for name in STEPS}
    if (most := max(tokens)) >= count or logits != {count}:
        yield f"{what!r} names token {most}, of {count}"
