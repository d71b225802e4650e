"""Texts with images in them: what is read of both, and in which order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import BadInput, DoesNotFit
from .image_pixels import ImagePixels
from .image_tokens import ImageTokens, image_tokens
from .memory import Array
from .placed_images import PlacedImage
from .specs import LOOK

if TYPE_CHECKING:
    from .entries import EntryRunner


class Illustrations:
    """Preparation of images that a model reads between words.

    Attributes:
        tokens: Those of an image.
    """

    def __init__(self, model: EntryRunner) -> None:
        """Prepare a model; ``DoesNotFit`` if it reads no images within texts."""
        if model.manifest.image_tokens is None:
            raise no_images()
        self.tokens: ImageTokens = image_tokens(model.manifest.image_tokens)
        self._model = model

    def pixels(self, files: Sequence[Path | bytes]) -> list[Array]:
        """The pixels of images, in files or as those hold them, as the model takes them.

        Raises:
            DoesNotFit: If nothing says how images become pixels, or one is of another size.
            BadInput: If one is no image.
            MachineLacks: If Pillow is not here.
        """
        pixels = ImagePixels(self._model, LOOK)
        return [pixels.of(file) for file in files]

    def text(
        self,
        text: str,
        files: Sequence[Path],
        tokenizer: Any,  # noqa: ANN401 - of an optional package
        encode: Callable[[str], list[int]],
    ) -> tuple[list[int], list[PlacedImage]]:
        """Ids of a text with images in files, as :meth:`Model.illustrated` gives them."""
        pixels = self.pixels(files)
        mark = tokenizer.id_to_token(self.tokens.begin)
        if mark not in text:
            text = mark * len(files) + text
        ids = encode(self.written(text, tokenizer))
        return ids, self.placed(ids, pixels)

    def written(self, text: str, tokenizer: Any) -> str:  # noqa: ANN401 - of an optional package
        """A text with all tokens of an image, by their texts, at each mark that one begins."""
        soft, mark, end = map(tokenizer.id_to_token, self.tokens.ids)
        tokens = self.tokens
        image = f"{mark}{soft * tokens.count}{end}"
        return text.replace(mark, f"{tokens.around}{image}{tokens.around}")

    def placed(self, ids: Sequence[int], images: Sequence[Array]) -> list[PlacedImage]:
        """The images where they stand in a text of ids.

        Raises:
            BadInput: If the text has not as many places as there are images.
        """
        token, count = self.tokens.token, self.tokens.count
        starts = [*_runs(ids, token)]
        if len(starts) != len(images) or any(length != count for _, length in starts):
            what = f"the text has places for {len(starts)} images, and {len(images)} are given"
            raise BadInput(what)
        return [
            PlacedImage(at, at + count, pixels, hashlib.sha256(pixels.tobytes()).hexdigest())
            for (at, _), pixels in zip(starts, images, strict=True)
        ]


def no_images() -> DoesNotFit:
    """The error to raise where a model is given images within a text that it cannot read."""
    return DoesNotFit("this model reads no images within texts", hint="leave --image out")


def _runs(ids: Sequence[int], token: int) -> Iterator[tuple[int, int]]:
    """Yield the place and the length of each run of a token."""
    at = 0
    for is_token, run in groupby(ids, lambda one: one == token):
        length = len([*run])
        if is_token:
            yield at, length
        at += length
