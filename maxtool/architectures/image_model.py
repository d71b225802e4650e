"""Functions of a model of images: its features, one vector for each image, and classes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from maxtool.architectures.entry import Entry
from maxtool.dtype import DType
from maxtool.graph import Tensor, TensorType

PIXELS = "pixel_values"


class ImageSizes(Protocol):
    """The sizes of images, and of what a classifier makes of them."""

    @property
    def side(self) -> int:
        """Pixels of a side of the images that it takes."""

    @property
    def n_channels(self) -> int:
        """Channels of images."""

    @property
    def n_labels(self) -> int:
        """Classes of a classifier; 0 for none."""


@runtime_checkable
class ImageModel(Protocol):
    """A module whose inputs are images alone."""

    @property
    def sizes(self) -> ImageSizes:
        """The sizes of images, and of what a classifier makes of them."""

    @property
    def features(self) -> tuple[str, ...]:
        """The names of what the module gives when it is called."""

    def __call__(self, pixel_values: Tensor, /) -> tuple[Tensor, ...]:
        """Give the features of ``[batch, channels, height, width]``, normalised."""

    def vector(self, pixel_values: Tensor) -> Tensor:
        """One vector for each image, ``[batch, size]``."""

    def classify(self, pixel_values: Tensor) -> Tensor:
        """A logit for each class, ``[batch, n_labels]``."""


def image_entries(model: ImageModel) -> tuple[Entry, ...]:
    """``forward``, ``embed``, and ``classify`` where there is a classifier."""
    side, channels = model.sizes.side, model.sizes.n_channels
    inputs = {PIXELS: TensorType(DType.float32, ["batch", channels, side, side])}
    entries = [
        Entry("forward", model, inputs, model.features),
        Entry("embed", model.vector, inputs, ("embeddings",)),
    ]
    if model.sizes.n_labels:
        entries.append(Entry("classify", model.classify, inputs, ("logits",)))
    return tuple(entries)
