"""Recipes of models of images and texts held against every recording of them."""

from __future__ import annotations

from collections.abc import Collection

from tests.data.seeded import Config
from tests.parity.test_dual_encoder import inputs_of
from tests.parity.traced import TracedModel
from tests.variants.recorded_faults import RecordedCase, Recordings


class DualEncoderCase(RecordedCase):
    """One recorded configuration of a model of images and texts."""

    recordings = Recordings("dual_encoder.npz")
    said = ("CLIP-0", "Siglip-0")
    prefixes = ()

    def outputs(self) -> Config:
        """The outputs of each entry that was recorded."""
        model = TracedModel(self.checkpoint, input_size=self.known["size"])
        return {
            f"{entry}.{output}": array
            for entry, inputs in inputs_of(self.name).items()
            for output, array in model.run(entry, inputs).items()
        }

    def sizes(self, values: Config) -> Config:
        """The sizes of images, and of what is made of them."""
        return {**values, "side": values["image_size"]}

    def unread(self, config: Config) -> Collection[str]:  # noqa: ARG002 - the interface
        """Return nothing: each key decides something."""
        return ()
