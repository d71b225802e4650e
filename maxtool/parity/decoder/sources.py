"""Which reader a decoder checkpoint's settings come from."""

from __future__ import annotations

from maxtool.parity.decoder.gguf.read import read_settings as read_gguf
from maxtool.parity.decoder.huggingface.read import read_settings as read_hugging_face
from maxtool.parity.decoder.settings import Settings
from maxtool.weights.checkpoint import Checkpoint


def read_settings(checkpoint: Checkpoint) -> Settings:
    """The settings of a checkpoint, from its own raw configuration.

    Raises:
        ConfigurationError: Listing everything that is missing, wrong or not supported.
    """
    return read_gguf(checkpoint) if checkpoint.format == "gguf" else read_hugging_face(checkpoint)
