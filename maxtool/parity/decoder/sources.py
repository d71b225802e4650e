"""Which reader a decoder checkpoint's settings come from."""

from __future__ import annotations

from maxtool.parity.decoder import gguf, huggingface
from maxtool.parity.decoder.settings import Settings
from maxtool.weights.checkpoint import Checkpoint


def read_settings(checkpoint: Checkpoint) -> Settings:
    """The settings of a checkpoint, from its own raw configuration.

    Raises:
        ConfigurationError: Listing everything that is missing, wrong or not supported.
    """
    if checkpoint.format == "gguf":
        return gguf.read_settings(checkpoint, str(checkpoint.metadata["general.architecture"]))
    return huggingface.read_settings(checkpoint, str((checkpoint.config or {})["model_type"]))
