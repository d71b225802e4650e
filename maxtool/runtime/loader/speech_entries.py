"""Entries of models of speech: what they take and give."""

from __future__ import annotations

from collections.abc import Iterator

from .audio_spec import audio_spec
from .manifest_parser import ManifestParser
from .manifest_rule import for_tasks
from .source_entries import gives_logits, named_tokens, source_and_steps
from .specs import ENCODE, TRANSCRIBE, EntrySpec
from .speech_spec import speech_spec

FEATURES = "input_features"


def _steps(manifest: ManifestParser) -> Iterator[str]:
    """Spectrograms are encoded, and steps that give logits follow."""
    return source_and_steps(manifest, _shaped)


def _shaped(name: str, entry: EntrySpec) -> Iterator[str]:
    return (_encodes if name == ENCODE else gives_logits)(name, entry)


def _encodes(name: str, entry: EntrySpec) -> Iterator[str]:
    inputs = [(spec.name, spec.dtype, tuple(map(type, spec.shape))) for spec in entry.inputs]
    if inputs != [(FEATURES, "float32", (str, int, int))]:
        yield f"{name!r} is not from {FEATURES}[batch, bands, frames] alone"


def _prepared(manifest: ManifestParser) -> Iterator[str]:
    """Check that spectrograms are what is encoded, and that all tokens that are named exist."""
    try:
        audio = None if manifest.audio is None else audio_spec(manifest.audio)
        speech = None if manifest.speech is None else speech_spec(manifest.speech)
    except ValueError as error:
        yield f"of sounds, {error}"
        return
    entry = manifest.entries[ENCODE]
    if audio is not None and entry.inputs[0].shape[1:] != (audio.bands, audio.frames):
        made = f"{audio.bands} bands and {audio.frames} frames"
        yield f"'audio' makes {made}, and {ENCODE!r} takes {entry.inputs[0]}"
    if speech is not None:
        yield from named_tokens(manifest, "speech", speech.tokens)


SPEECH_RULES = for_tasks((TRANSCRIBE,), _steps, _prepared)
