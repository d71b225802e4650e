"""Recipes of convolutional networks held against every recording of them."""

from __future__ import annotations

from collections.abc import Collection

from tests.data.seeded import Config, network_tensors, pixel_values
from tests.parity.traced import TracedModel
from tests.variants.recorded_faults import RecordedCase, Recordings

USUAL = 224
"""Pixels of a side of images where a configuration does not say."""


class ConvnetCase(RecordedCase):
    """One recorded configuration of a network that sees images in stages."""

    recordings = Recordings("convnets.npz")
    said = ("ResNet-0", "ConvNext-0", "ConvNextV2-0")
    prefixes = ("resnet.", "convnext.", "convnextv2.")

    def tensors(self, shapes: Config) -> Config:
        """The tensors that were recorded with."""
        return network_tensors(shapes)

    def outputs(self) -> Config:
        """The outputs of each entry that was recorded."""
        model = TracedModel(self.checkpoint, input_size=self.known["size"])
        pixels = pixel_values(self.known["config"], self.known["size"])
        entries = {name.partition(".")[0] for name in self.recordings.of(self.name)}
        return {
            f"{entry}.{output}": array
            for entry in entries
            for output, array in model.run(entry, {"pixel_values": pixels}).items()
        }

    def sizes(self, values: Config) -> Config:
        """The sizes of images."""
        return {**values, "side": values.get("image_size", USUAL), "batch": "batch"}

    def unread(self, config: Config) -> Collection[str]:  # noqa: ARG002 - the interface
        """Return nothing: each key decides something."""
        return ()
