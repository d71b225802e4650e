"""Recipes of models of speech held against every recording of them."""

from __future__ import annotations

from collections.abc import Collection

from tests.data.seeded import Config
from tests.parity.speech import SpeechModel
from tests.variants.recorded_faults import RecordedCase, Recordings


class SpeechCase(RecordedCase):
    """One recorded configuration of a model of speech."""

    recordings = Recordings("whisper.npz")
    said = ("whisper-0",)
    prefixes = ("model.",)

    def outputs(self) -> Config:
        """The encoder's output, and logits."""
        return SpeechModel(self.checkpoint).outputs(self.known["config"])

    def sizes(self, values: Config) -> Config:
        """The sizes of spectrograms, and of texts."""
        frames = 2 * values["source_positions"]
        return {**values, "frames": frames, "batch": "batch", "seq": "seq"}

    def unread(self, config: Config) -> Collection[str]:  # noqa: ARG002 - the interface
        """Return nothing: each key decides something."""
        return ()
