"""Recipes of models of two texts held against every recording of them."""

from __future__ import annotations

from collections.abc import Collection

from tests.data.seeded import Config
from tests.parity.seq2seq import Seq2SeqModel
from tests.variants.recorded_faults import RecordedCase, Recordings


class Seq2SeqCase(RecordedCase):
    """One recorded configuration of a model of two texts."""

    recordings = Recordings("seq2seq.npz")
    said = ("bart-0", "mbart-0", "t5-0", "mt5-0", "umt5-0")
    prefixes = ("model.",)

    def outputs(self) -> Config:
        """The encoder's outputs, and logits."""
        return Seq2SeqModel(self.checkpoint).outputs(self.known["config"])

    def sizes(self, values: Config) -> Config:
        """The sizes of texts."""
        return {**values, "batch": "batch", "seq": "seq"}

    def unread(self, config: Config) -> Collection[str]:
        """The keys that say again what another one says."""
        return SAID_AGAIN if config["model_type"].endswith("t5") else ()


# Of T5: what ``feed_forward_proj`` means, and what heads that are tied, or are not, are scaled by.
SAID_AGAIN = (
    *("dense_act_fn", "is_gated_act", "feed_forward_proj", "scale_decoder_outputs"),
    *("tie_word_embeddings", "num_decoder_layers"),
)
