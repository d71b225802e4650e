"""Images where they stand in a text, and how far two such texts are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .image_entries import PIXELS
from .memory import Array
from .processor import State
from .slots import Slot, places_of
from .specs import LOOK

if TYPE_CHECKING:
    from .entries import EntryRunner


class PlacedImage(NamedTuple):
    """An image in a text."""

    start: int  # the position of its first token
    end: int  # and that behind the last
    pixels: Array  # [channels, height, width]
    checksum: str


def common_start(common: int, first: Sequence[PlacedImage], second: Sequence[PlacedImage]) -> int:
    """Count how many of the first ``common`` tokens two texts share, images looked at as well."""
    own, other = ({image.start: image for image in images} for images in (first, second))
    for start in sorted({*own, *other}):
        if start < common and not _same(own.get(start), other.get(start), common):
            return start
    return common


def _same(first: PlacedImage | None, second: PlacedImage | None, common: int) -> bool:
    """Return whether the same image stands in both texts, as far as they are the same."""
    if first is None or second is None:
        return False
    return first.checksum == second.checksum and max(first.end, second.end) <= common


def look(model: EntryRunner, state: State, slot: Slot, image: PlacedImage) -> None:
    """Read an image into its place of a text in a state."""
    place = places_of(model.manifest, [(slot.number, image.start)])
    model.run(LOOK, {PIXELS: image.pixels[None], **place}, state)
