"""Images where they stand in a text, and how far two such texts are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .memory import Array


class PlacedImage(NamedTuple):
    """An image in a text."""

    start: int  # the position of its first token
    end: int  # and that behind the last
    pixels: Array  # [channels, height, width]
    checksum: str


def common_start(common: int, before: Sequence[PlacedImage], images: Sequence[PlacedImage]) -> int:
    """Count how many of the first ``common`` tokens two texts share, images looked at as well."""
    known = {image.start: image.checksum for image in before}
    for image in images:
        if image.start < common and (
            known.get(image.start) != image.checksum or image.end > common
        ):
            return image.start
    return common
