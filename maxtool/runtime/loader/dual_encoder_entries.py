"""Entries of models of images and texts: what compares the vectors of both."""

from __future__ import annotations

from collections.abc import Iterator

from .class_entries import SCORES
from .manifest_parser import ManifestParser
from .manifest_rule import Rule
from .specs import DUAL_ENCODER, EMBED, EMBED_IMAGE, SCORE

VECTORS = ("image_embeds", "text_embeds")
LOGITS = "logits_per_image"


def _scored(manifest: ManifestParser) -> Iterator[str]:
    """Logits are made of vectors of both kinds, and something says what scores are."""
    if manifest.task != DUAL_ENCODER:
        return
    entry = manifest.entries.get(SCORE)
    if entry is None:
        yield f"the task is {DUAL_ENCODER!r}, and there is no entry {SCORE!r}"
        return
    inputs = [(spec.name, spec.dtype, tuple(map(type, spec.shape))) for spec in entry.inputs]
    if inputs != [(name, "float32", (str, int)) for name in VECTORS]:
        yield f"{SCORE!r} is not from {' and '.join(VECTORS)}, vectors, alone"
    elif entry.inputs[0].shape[0] == entry.inputs[1].shape[0]:
        yield f"{SCORE!r} takes as many images as texts"
    outputs = [(spec.name, tuple(map(type, spec.shape))) for spec in entry.outputs]
    if outputs != [(LOGITS, (str, str))]:
        yield f"{SCORE!r} does not give {LOGITS}[images, texts] alone"
    if manifest.scores not in SCORES:
        yield f"'scores' is {manifest.scores!r:.40}, none of {', '.join(SCORES)}"


def _of_one_space(manifest: ManifestParser) -> Iterator[str]:
    """Vectors of images and of texts are as long as those that are compared."""
    if manifest.task != DUAL_ENCODER:
        return
    named = (manifest.entries[name] for name in (EMBED, EMBED_IMAGE))
    made = {spec.shape[-1] for entry in named for spec in entry.outputs}
    made |= {spec.shape[-1] for spec in manifest.entries[SCORE].inputs}
    if len(made) != 1:
        yield f"vectors of several sizes: {', '.join(map(str, sorted(map(str, made))))}"


DUAL_ENCODER_RULES: tuple[Rule, ...] = (_scored, _of_one_space)
