"""Entries of models that tell classes apart: what they give, the names of labels, and scores."""

from __future__ import annotations

from collections.abc import Iterator

from .manifest_parser import ManifestParser
from .manifest_rule import Rule
from .specs import CLASSIFY, EMBED

LOGITS = "logits"
# What makes scores of logits.
SCORES = ("softmax", "sigmoid", "none")
READ = {"input_ids", "attention_mask", "token_type_ids"}


def _of_texts(manifest: ManifestParser) -> Iterator[str]:
    """Logits of texts are made of their tokens, and something says what scores are."""
    entry = manifest.entries.get(CLASSIFY)
    if manifest.task != EMBED or entry is None:
        return
    if not {"input_ids", "attention_mask"} <= {spec.name for spec in entry.inputs} <= READ:
        yield f"{CLASSIFY!r} is not from input_ids and attention_mask"
    if [(spec.name, tuple(map(type, spec.shape))) for spec in entry.outputs] != [
        (LOGITS, (str, int))
    ]:
        yield f"{CLASSIFY!r} does not give {LOGITS}[batch, size] alone"
    if manifest.scores not in SCORES:
        yield f"'scores' is {manifest.scores!r:.40}, none of {', '.join(SCORES)}"


def _labelled(manifest: ManifestParser) -> Iterator[str]:
    """Check that there is a name for each logit, or for none."""
    entry = manifest.entries.get(CLASSIFY)
    if manifest.labels is None or entry is None or not entry.outputs:
        return
    if len(manifest.labels) != entry.outputs[0].shape[-1]:
        yield f"there are {len(manifest.labels)} labels for {entry.outputs[0]}"


CLASS_RULES: tuple[Rule, ...] = (_of_texts, _labelled)
