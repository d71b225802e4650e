"""Recipes of convolutional networks held against every recording of them."""

from __future__ import annotations

from collections.abc import Collection

from tests.data.seeded import Config, network_tensors
from tests.variants.image_faults import ImageCase
from tests.variants.recorded_faults import Recordings

USUAL = 224
"""Pixels of a side of images where a configuration does not say."""


class ConvnetCase(ImageCase):
    """One recorded configuration of a network that sees images in stages."""

    recordings = Recordings("convnets.npz")
    said = ("ResNet-0", "ConvNext-0", "ConvNextV2-0")
    prefixes = ("resnet.", "convnext.", "convnextv2.")

    def tensors(self, shapes: Config) -> Config:
        """The tensors that were recorded with."""
        return network_tensors(shapes)

    def sizes(self, values: Config) -> Config:
        """The sizes of images."""
        return {**values, "side": values.get("image_size", USUAL), "batch": "batch"}

    def unread(self, config: Config) -> Collection[str]:  # noqa: ARG002 - the interface
        """Return nothing: each key decides something."""
        return ()
