"""Entries of models of images: what they take and give, and what is done to images before."""

from __future__ import annotations

from collections.abc import Iterator

from .image_spec import image_spec
from .manifest_parser import ManifestParser
from .manifest_rule import for_tasks
from .specs import CLASSIFY, DUAL_ENCODER, EMBED, EMBED_IMAGE, IMAGE, EntrySpec

PIXELS = "pixel_values"
# What entries give.
RESULTS = {EMBED: "embeddings", EMBED_IMAGE: "embeddings", CLASSIFY: "logits"}
# The entries that take images, by the task; the first of them makes vectors.
TAKING = {IMAGE: (EMBED, CLASSIFY), DUAL_ENCODER: (EMBED_IMAGE,)}


def _images(manifest: ManifestParser) -> Iterator[str]:
    """Vectors and logits are made from pixels, and nothing else."""
    names = TAKING[str(manifest.task)]
    if names[0] not in manifest.entries:
        yield f"the task is {manifest.task!r}, and there is no entry {names[0]!r}"
    for name in names:
        if name in manifest.entries:
            yield from _shaped(name, manifest.entries[name])


def _shaped(name: str, entry: EntrySpec) -> Iterator[str]:
    inputs = [(spec.name, spec.dtype, tuple(map(type, spec.shape))) for spec in entry.inputs]
    if inputs != [(PIXELS, "float32", (str, int, int, int))]:
        yield f"{name!r} is not from {PIXELS}[batch, channels, height, width] alone"
    outputs = [(spec.name, tuple(map(type, spec.shape))) for spec in entry.outputs]
    if outputs != [(RESULTS[name], (str, int))]:
        yield f"{name!r} does not give {RESULTS[name]}[batch, size] alone"


def _prepared(manifest: ManifestParser) -> Iterator[str]:
    """Check that the steps of the preprocessing make what the entries take."""
    name = TAKING[str(manifest.task)][0]
    if manifest.image is None or name not in manifest.entries:
        return
    try:
        steps = image_spec(manifest.image)
    except ValueError as error:
        yield f"'image': {error}"
        return
    shape = manifest.entries[name].inputs[0].shape if manifest.entries[name].inputs else ()
    if shape[1:] != (3, *(steps.result or ())):
        yield f"'image' makes {steps.result}, and {name!r} takes {list(shape)}"


IMAGE_RULES = for_tasks(TAKING, _images, _prepared)
