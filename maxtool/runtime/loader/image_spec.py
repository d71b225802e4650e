"""Steps that an image goes through before a model sees it, as the manifest says them.

The steps, their order and their names are those of transformers' image processors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .manifest_fields import optional

MOST_PIXELS = 89_478_485
"""Pixels of the largest image: Pillow's own limit, above which it warns of a bomb."""
# Pillow's numbers of filters, by name.
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


@dataclass(frozen=True)
class ImageSpec:
    """Steps that an RGB image goes through, in this order; None for one that is left out."""

    size: tuple[int, int] | None  # height and width that it is resized to
    shortest_edge: int | None  # or the smaller of them, the other following
    resample: str  # the filter, of FILTERS
    crop: tuple[int, int] | None  # height and width of what is cut out of the middle
    rescale: float | None  # what pixels of 0 to 255 are multiplied with
    mean: tuple[float, ...] | None  # taken off each channel
    std: tuple[float, ...] | None  # which is then divided by this
    # Whether a colour that stands for none, as of palettes, is white.
    on_white: bool = False

    @property
    def result(self) -> tuple[int, int] | None:
        """The height and width that come out; None where they follow from the image."""
        return self.crop or self.size


def image_spec(item: Mapping[str, Any]) -> ImageSpec:
    """The steps that a manifest says; ValueError that names what is wrong."""
    steps = ImageSpec(
        size=_sides(item, "size"),
        shortest_edge=optional(item, "shortest_edge", _is_side),
        resample=str(item.get("resample")),
        crop=_sides(item, "crop"),
        rescale=optional(item, "rescale", _is_number),
        mean=_channels(item, "mean"),
        std=_channels(item, "std"),
        on_white=item.get("on_white") is True,
    )
    if steps.resample not in FILTERS:
        raise ValueError(f"'resample' is {item.get('resample')!r:.40}")
    if (steps.mean is None) != (steps.std is None) or 0.0 in (steps.std or ()):
        raise ValueError("'mean' and 'std' go together, and none of the latter is 0")
    if steps.size and steps.shortest_edge:
        raise ValueError("'size' and 'shortest_edge' exclude each other")
    return steps


def _is_side(value: object) -> bool:
    return type(value) is int and 0 < value <= math.isqrt(MOST_PIXELS)


def _are_sides(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_side, value))


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _are_channels(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_number, value))


def _sides(item: Mapping[str, Any], key: str) -> tuple[int, int] | None:
    value = optional(item, key, _are_sides)
    return None if value is None else (value[0], value[1])


def _channels(item: Mapping[str, Any], key: str) -> tuple[float, ...] | None:
    value = optional(item, key, _are_channels)
    return None if value is None else tuple(map(float, value))
