"""Entries of models of speech: what they take and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from .audio_spec import audio_spec
from .manifest_parser import ManifestParser
from .specs import ENCODE, TRANSCRIBE, EntrySpec
from .speech_spec import speech_spec

Rule: TypeAlias = Callable[[ManifestParser], Iterator[str]]

FEATURES = "input_features"
STEPS = ("prefill", "decode")


def _steps(manifest: ManifestParser) -> Iterator[str]:
    """Spectrograms are encoded, and steps that give logits follow, all on one state."""
    for name in (ENCODE, *STEPS):
        entry = manifest.entries.get(name)
        if entry is None:
            yield f"the task is {TRANSCRIBE!r}, and there is no entry {name!r}"
        elif not entry.state:
            yield f"{name!r} has no state"
        else:
            yield from _encodes(name, entry) if name == ENCODE else _writes(name, entry)
    if manifest.batch > 1:
        yield f"the task is {TRANSCRIBE!r}, and the state has {manifest.batch} slots"


def _encodes(name: str, entry: EntrySpec) -> Iterator[str]:
    inputs = [(spec.name, spec.dtype, tuple(map(type, spec.shape))) for spec in entry.inputs]
    if inputs != [(FEATURES, "float32", (str, int, int))]:
        yield f"{name!r} is not from {FEATURES}[batch, bands, frames] alone"


def _writes(name: str, entry: EntrySpec) -> Iterator[str]:
    outputs = [(spec.name, tuple(map(type, spec.shape))) for spec in entry.outputs]
    if outputs != [("logits", (str, int))]:
        yield f"{name!r} does not give logits[batch, tokens] alone"


def _prepared(manifest: ManifestParser) -> Iterator[str]:
    """Check that spectrograms are what is encoded, and that all tokens that are named exist."""
    try:
        audio = None if manifest.audio is None else audio_spec(manifest.audio)
        speech = None if manifest.speech is None else speech_spec(manifest.speech)
    except ValueError as error:
        yield f"of sounds, {error}"
        return
    entry, limit = manifest.entries[ENCODE], manifest.limits.get("input_ids")
    if audio is not None and entry.inputs[0].shape[1:] != (audio.bands, audio.frames):
        made = f"{audio.bands} bands and {audio.frames} frames"
        yield f"'audio' makes {made}, and {ENCODE!r} takes {entry.inputs[0]}"
    count = limit[1] + 1 if isinstance(limit, tuple) else 0
    logits = {manifest.entries[name].outputs[0].shape[-1] for name in STEPS}
    if speech is not None and (max(speech.tokens) >= count or logits != {count}):
        yield f"'speech' names token {max(speech.tokens)}, of {count}"


def _for_speech(rule: Rule) -> Rule:
    return lambda manifest: rule(manifest) if manifest.task == TRANSCRIBE else iter(())


SPEECH_RULES: tuple[Rule, ...] = (_for_speech(_steps), _for_speech(_prepared))
