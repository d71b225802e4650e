"""Decoders that make a vector of a text in the place of further tokens."""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.architectures.decoder import CPU_FORM, Decoder
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.dense_layers import DenseLayers
from maxtool.architectures.entry import Entry, Limit
from maxtool.architectures.pooling import pooled
from maxtool.architectures.token_masks import near, shown
from maxtool.dtype import DType
from maxtool.graph import Tensor, TensorType, ops
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
        self.dense = DenseLayers(config, dtype) if config.dense_features else None

    def head(self, width: int, dtype: DType) -> Linear | None:  # noqa: ARG002 - there is none
        """Return None: vectors are read behind the last norm."""
        return None

    def pool(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One vector ``[batch, features]`` for each text ``[batch, seq]``.

        The mask is 1 for a token and 0 for padding.
        """
        x = self.masked(input_ids, attention_mask)
        normalize = self.config.normalize
        return pooled(self.pooling, x, attention_mask, normalize=normalize, dense=self.dense)

    def masked(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The normalised vectors ``[batch, seq, hidden]`` of tokens, none of which sees padding.

        Where tokens see only those before them, padding behind them is hidden without a mask.
        """
        if not self.config.bidirectional:
            return self.vectors(input_ids)
        location = Tensor([0], DType.int32, input_ids.device), None
        return self._hidden(input_ids, location, [], masks=self._masks(input_ids, attention_mask))

    def _masks(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """The mask of each layer."""
        layers = range(self.config.n_layers)
        windows = [self.config.window(layer) for layer in layers]
        there = shown(attention_mask)
        masks: dict[int | None, Tensor] = {None: there}
        for window in {*windows} - {None}:
            masks[window] = ops.logical_and(there, near(input_ids, (window or 0) // 2))
        return [masks[window] for window in windows]

    @property
    def pooling(self) -> str:
        """The way from vectors of tokens to that of a text."""
        return self.config.pooling or "mean"

    @property
    def facts(self) -> Mapping[str, object]:
        """Sizes, how ``embed`` pools tokens into one vector, and what is put before texts."""
        names = ("vocab_size", "hidden_size", "n_layers", "n_experts_used", "normalize")
        told = {name: getattr(self.config, name) for name in names}
        told |= {"pooling": self.pooling, "padding": BEHIND, "prompt": self.config.default_prompt}
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
        ones, gives = {"attention_mask": 1}, ("last_hidden_state",)
        forward = Entry("forward", self.vectors, tokens, gives)
        if self.config.bidirectional:
            forward = Entry("forward", self.masked, masked, gives, defaults=ones)
        return forward, Entry("embed", self.pool, masked, ("embeddings",), defaults=ones)
