"""Facts for the manifest of a model of images: the preprocessing, and the labels of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.architectures.image_model import ImageModel
from maxtool.architectures.image_text import ImageTextDecoder
from maxtool.artifact import image_processor
from maxtool.artifact.request import Request
from maxtool.errors import UsageError
from maxtool.recipe import Plan

RGB = 3
OPTION = "--image-size"


def input_size(request: Request, planned: Plan) -> int | None:
    """The side of the images that a model is compiled for: what is asked for, or comes to it.

    Raises:
        UsageError: If one is asked for, of a model that takes no images.
    """
    if "input_size" not in planned.recipe.fields:
        if request.image_size is not None:
            raise UsageError(f"{OPTION} is for models of images, not {planned.recipe.name}")
        return None
    if request.image_size is not None:
        return request.image_size
    steps = image_processor.read(planned.checkpoint.folder)
    height, width = (steps and steps.result) or (None, None)
    return height if height == width else None


def image_facts(planned: Plan, module: object) -> tuple[Mapping[str, Any], list[str]]:
    """The facts ``image`` and ``labels``, those there are; and what to tell."""
    encoder = module.vision if isinstance(module, ImageTextDecoder) else module
    if not isinstance(encoder, ImageModel):
        return {}, []
    facts = {"labels": labels} if (labels := _labels(planned, encoder.sizes.n_labels)) else {}
    steps = image_processor.read(planned.checkpoint.folder)
    if steps is None or encoder.sizes.n_channels != RGB:
        return facts, [_without(steps is None)]
    side = encoder.sizes.side
    fitted = image_processor.resized(steps, side)
    told = [] if fitted == steps else [f"images are made {side} pixels wide and high"]
    if steps.result is None:
        told.append(f"images must have {side} x {side} pixels after the preprocessing")
    return {**facts, "image": image_processor.manifest(fitted)}, told


def _without(no_file: bool) -> str:
    why = f"the source has no {image_processor.FILE}" if no_file else "the model takes no colours"
    return f"{why}: the artifact takes pixel values, not images"


def _labels(planned: Plan, count: int) -> list[str] | None:
    """The names of the classes; None where the configuration does not name each."""
    named = (planned.checkpoint.config or {}).get("id2label")
    if not count or not isinstance(named, dict):
        return None
    labels = [named.get(str(number)) for number in range(count)]
    texts = [label for label in labels if isinstance(label, str)]
    return texts if len(texts) == count else None
