"""Decoders that make a vector of a text in the place of further tokens."""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.architectures.decoder import CPU_FORM, Decoder
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.entry import Entry, Limit
from maxtool.architectures.pooling import pooled
from maxtool.dtype import DType
from maxtool.graph import Tensor, TensorType
from maxtool.nn import Linear
from maxtool.runtime.loader.specs import BEHIND


class TextEmbedder(Decoder):
    """A decoder without a head and without a cache; padding belongs behind its texts.

    The context, where none is named, is as long as texts are cut to, or as it was trained for.
    """

    def __init__(
        self, config: DecoderConfig, dtype: DType = DType.float32, context: int | None = None
    ) -> None:
        trained = config.max_context
        cut = min(config.max_length or trained, trained)
        super().__init__(config, dtype, context or cut, CPU_FORM)

    def head(self, width: int, dtype: DType) -> Linear | None:  # noqa: ARG002 - there is none
        """Return None: vectors are read behind the last norm."""
        return None

    def pool(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One vector ``[batch, hidden]`` for each text ``[batch, seq]``.

        The mask is 1 for a token and 0 for padding.
        """
        pooling, normalize = self.config.pooling or "last", self.config.normalize
        return pooled(pooling, self.vectors(input_ids), attention_mask, normalize=normalize)

    @property
    def facts(self) -> Mapping[str, object]:
        """Sizes, how ``embed`` pools tokens into one vector, and what is put before texts."""
        names = ("vocab_size", "hidden_size", "n_layers", "n_experts_used", "pooling", "normalize")
        told = {name: getattr(self.config, name) for name in names}
        told |= {"padding": BEHIND, "prompt": self.config.default_prompt}
        return {name: value for name, value in told.items() if value is not None}

    @property
    def positions(self) -> Mapping[str, int]:
        """Empty: nothing is kept of a text."""
        return {}

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Positions, tokens and masks."""
        tokens = (0, self.config.vocab_size - 1)
        return {"seq": self.context, "input_ids": tokens, "attention_mask": (0, 1)}

    def entries(self) -> tuple[Entry, ...]:
        """``forward``, which gives the vectors of tokens, and ``embed``."""
        tokens = {"input_ids": TensorType(DType.int64, ["batch", "seq"])}
        masked = {**tokens, "attention_mask": tokens["input_ids"]}
        return (
            Entry("forward", self.vectors, tokens, ("last_hidden_state",)),
            Entry("embed", self.pool, masked, ("embeddings",), defaults={"attention_mask": 1}),
        )
