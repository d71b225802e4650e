"""Recipes of encoders of images held against every recording of them."""

from __future__ import annotations

from collections.abc import Collection

from tests.data.seeded import Config, pixel_values
from tests.parity.test_image_encoder import TOWERS
from tests.parity.traced import TracedModel
from tests.variants.recorded_faults import RecordedCase, Recordings


class ImageCase(RecordedCase):
    """One recorded configuration of an encoder of images."""

    recordings = Recordings("image_encoders.npz", lambda name: name not in TOWERS)
    said = ("ViT-0", "Dinov2-0", "Dinov2WithRegisters-0", "Siglip-0", "CLIP-projected")
    prefixes = ("vision_model.", "vit.", "dinov2.", "dinov2_with_registers.")

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
        """The sizes of images, and of what is made of them."""
        return {**values, "side": values["image_size"], "batch": "batch"}

    def unread(self, config: Config) -> Collection[str]:
        """The activation, where gated MLPs have their own."""
        return {"hidden_act"} if config.get("use_swiglu_ffn") else ()
