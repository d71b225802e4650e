"""Files of images as the pixels that a model takes, equal to those of transformers' processors.

Pillow, an optional package, decodes and resizes them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .errors import BadInput, MachineLacks, last_line
from .image_spec import FILTERS, MOST_PIXELS, ImageSpec
from .memory import Array

# Formats that Pillow decodes by itself; for others it may start programs.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def pixels_of(image_file: Path | bytes, steps: ImageSpec) -> Array:
    """The pixels of an image, float32 ``[3, height, width]``, of a file or of what one holds.

    The image is turned as its EXIF orientation says and made RGB, as transformers does to an image
    that is named by its path.

    Raises:
        MachineLacks: If Pillow is not here.
        BadInput: If the file is no image of a known format, damaged, or too large.
    """
    image_module, turned = _pillow()
    path = image_file if isinstance(image_file, Path) else None
    opened = BytesIO(image_file) if isinstance(image_file, bytes) else image_file
    with _reading(path), image_module.open(opened, formats=FORMATS) as image:
        _check_pixels(path, *image.size)
        coloured = turned(image).convert("RGB")
        if steps.on_white:
            coloured = _on_white(image_module, coloured)
        picture = _resized(path, coloured, steps)
        array = np.moveaxis(np.asarray(picture), -1, 0)
    return _normalized(array if steps.crop is None else _cropped(array, *steps.crop), steps)


def _pillow() -> tuple[ModuleType, Any]:
    """Pillow's module of images, and what turns one as its orientation says."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        what = "images need the package Pillow, which this Python lacks"
        raise MachineLacks(what, hint="pip install pillow") from None
    return Image, ImageOps.exif_transpose


@contextmanager
def _reading(path: Path | None) -> Iterator[None]:
    """Report whatever goes wrong in Pillow as ``BadInput``: a damaged file may raise anything."""
    try:
        with warnings.catch_warnings(category=UserWarning, action="ignore"):
            warnings.simplefilter("ignore")
            yield
    except (BadInput, MemoryError):
        raise
    except OSError as error:
        if error.errno is not None:
            raise BadInput(f"the image cannot be read: {error.strerror}", file=path) from None
        raise _damaged(path, error) from None
    except Exception as error:
        raise _damaged(path, error) from None


def _damaged(path: Path | None, error: Exception) -> BadInput:
    hint = f"images are {', '.join(FORMATS)}"
    what = f"no image that can be decoded: {last_line(error)!s:.120}"
    return BadInput(what, file=path, hint=hint)


def _on_white(image_module: ModuleType, image: Any) -> Any:  # noqa: ANN401 - Pillow's class
    """The image with white where a colour stands for none."""
    if image.info.get("transparency") is None:
        return image
    white = image_module.new("RGBA", image.size, (255, 255, 255, 255))
    return image_module.alpha_composite(white, image.convert("RGBA")).convert("RGB")


def _check_pixels(path: Path | None, width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        what = f"an image of {width} x {height} pixels, which are more than {MOST_PIXELS}"
        raise BadInput(what, file=path, hint="make it smaller first")


def _resized(path: Path | None, image: Any, steps: ImageSpec) -> Any:  # noqa: ANN401 - Pillow's class
    width, height = image.size
    if steps.shortest_edge is not None:
        height, width = _by_shortest(height, width, steps.shortest_edge)
    elif steps.size is not None:
        height, width = steps.size
    else:
        return image
    _check_pixels(path, width, height)
    return image.resize((width, height), resample=FILTERS[steps.resample])


def _by_shortest(height: int, width: int, edge: int) -> tuple[int, int]:
    """The height and width of which the smaller is ``edge``, the other rounded down."""
    longer = int(edge * max(height, width) / min(height, width))
    return (longer, edge) if width <= height else (edge, longer)


def _cropped(array: Array, height: int, width: int) -> Array:
    """The middle of an array ``[3, rows, columns]``, with zeros around where it is too small."""
    rows, columns = array.shape[1:]
    whole = np.zeros((array.shape[0], max(rows, height), max(columns, width)), array.dtype)
    top, left = (math.ceil(n / 2) for n in (whole.shape[1] - rows, whole.shape[2] - columns))
    whole[:, top : top + rows, left : left + columns] = array
    first, begin = (rows - height) // 2 + top, (columns - width) // 2 + left
    return whole[:, first : first + height, begin : begin + width]


def _normalized(array: Array, steps: ImageSpec) -> Array:
    scaled = array.astype(np.float64) * (1.0 if steps.rescale is None else steps.rescale)
    result = scaled.astype(np.float32)
    if steps.mean is not None and steps.std is not None:
        mean, std = (np.array(each, np.float32)[:, None, None] for each in (steps.mean, steps.std))
        result = (result - mean) / std
    return np.ascontiguousarray(result)
