"""Images in files as the pixels that an entry of a model takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .errors import DoesNotFit
from .image_files import pixels_of
from .image_spec import image_spec
from .memory import Array

if TYPE_CHECKING:
    from .entries import EntryRunner


class ImagePixels:
    """Preprocessing of images for an entry, by the steps that the manifest tells."""

    def __init__(self, model: EntryRunner, entry: str) -> None:
        """Prepare for an entry; ``DoesNotFit`` if nothing says how images become pixels."""
        if model.manifest.image is None:
            what = "the model takes pixel values, and nothing says how images become those"
            raise DoesNotFit(what, hint="compile it with its preprocessor_config.json")
        self._steps = image_spec(model.manifest.image)
        self._wanted = model.entry(entry).inputs[0].shape[1:]

    def of(self, image: Path | bytes) -> Array:
        """The pixels of an image, float32 ``[3, height, width]``, of a file or what one holds.

        Raises:
            DoesNotFit: If steps that depend on the image make another size than the model takes.
            BadInput: If it is no image.
            MachineLacks: If Pillow is not here.
        """
        pixels = pixels_of(image, self._steps)
        if pixels.shape != self._wanted:
            made, fits = (" x ".join(map(str, size[1:])) for size in (pixels.shape, self._wanted))
            file = image if isinstance(image, Path) else None
            raise DoesNotFit(f"the image has {made} pixels; the model takes {fits}", file=file)
        return pixels
