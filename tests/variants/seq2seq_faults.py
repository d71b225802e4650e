"""Recipes of models of two texts held against every recording of them."""

from __future__ import annotations

from collections.abc import Collection

from tests.data.seeded import Config
from tests.parity.seq2seq import Seq2SeqModel
from tests.variants.recorded_faults import RecordedCase, Recordings


def _tells(name: str) -> bool:
    """Return whether many keys are others at once, or none is: each of those tells little more."""
    family, _, number = name.partition("-")
    return not number.isdecimal() or int(number) == 0 or int(number) >= FIRST_RANDOM[family]


# The number of the first random configuration of each family.
FIRST_RANDOM = {"bart": 38, "mbart": 38} | dict.fromkeys(("t5", "mt5", "umt5"), 38)


class Seq2SeqCase(RecordedCase):
    """One recorded configuration of a model of two texts."""

    recordings = Recordings("seq2seq.npz", _tells)
    said = ("bart-0", "mbart-0", "t5-0", "mt5-0", "umt5-0")
    allowed = 4e-5  # see tests/parity/test_seq2seq.py
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
