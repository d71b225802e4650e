"""Recipes of texts with images held against every recording of them."""

from __future__ import annotations

from collections.abc import Collection

from tests.data.seeded import Config
from tests.parity.image_text import ImageTextModel
from tests.variants.recorded_faults import RecordedCase, Recordings


class ImageTextCase(RecordedCase):
    """One recorded configuration of a model of texts with images."""

    recordings = Recordings("image_text.npz")
    said = ("plain",)
    prefixes = ()
    allowed = 5e-6  # transformers computes in float32
    rounding = 1e-6  # norms are kept as what they are beside 1

    def outputs(self) -> Config:
        """Logits behind a text with images."""
        return ImageTextModel(self.checkpoint).outputs(self.known)

    def sizes(self, values: Config) -> Config:
        """The sizes of images, and of texts."""
        side = values["vision_image_size"]
        return {**values, "side": side, "batch": "batch", "seq": "seq"}

    def told(self, config: Config) -> Config:
        """Keys of the case: those of the text as they are, of the encoder with their table."""
        seen = {f"vision_config.{key}": value for key, value in config["vision_config"].items()}
        return {**config, **seen, **config["text_config"], "model_type": config["model_type"]}

    def unread(self, config: Config) -> Collection[str]:  # noqa: ARG002 - the interface
        """The keys that say what others do."""
        return {"rope_parameters.full_attention.rope_type", "sliding_window_pattern"}
