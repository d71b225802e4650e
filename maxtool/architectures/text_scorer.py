"""Decoders that score texts, or pairs of them, by the vector of the last token."""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.entry import Entry
from maxtool.architectures.normalization import applied
from maxtool.architectures.pooling import last
from maxtool.architectures.text_embedder import TextEmbedder
from maxtool.architectures.token_masks import factors
from maxtool.dtype import DType
from maxtool.graph import Tensor
from maxtool.nn import Linear


class TextScorer(TextEmbedder):
    """A decoder whose score of a text is a logit of its head, or what it has over another.

    Of the head there are only the rows of these tokens. In its place may be a head for labels.
    """

    def __init__(
        self, config: DecoderConfig, dtype: DType = DType.float32, context: int | None = None
    ) -> None:
        super().__init__(config, dtype, context)
        width = config.embed_size or config.hidden_size
        self.scores = Linear(width, config.score_rows, dtype)

    def head(self, width: int, dtype: DType) -> Linear | None:
        """The head, which nothing computes here: it is what a checkpoint has besides."""
        by_tokens = self.config.scored_by == "tokens"
        return self.whole_head(width, dtype) if by_tokens else None

    def classify(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The scores ``[batch, n_scores]`` of texts ``[batch, seq]``, before any function of them.

        The mask is 1 for a token and 0 for padding.
        """
        x = last(self.masked(input_ids, attention_mask), factors(attention_mask))
        batch, _, width = x.shape
        read = x.reshape([batch, width])
        if self.config.scored_by != "tokens":
            return self.scores(read)
        logits = self.bounded(self.scores(applied(self.project_out, read)))
        return logits[:, :1] - logits[:, 1:] if self.config.is_difference else logits

    @property
    def pooling(self) -> str:
        """The last token, of which scores are made too."""
        return self.config.pooling or "last"

    @property
    def facts(self) -> Mapping[str, object]:
        """Sizes, what is put before texts, and what scores are."""
        labels = self.config.named_labels
        named = {} if labels is None else {"labels": [*labels]}
        return {**super().facts, **named, "scores": self.config.scoring}

    def entries(self) -> tuple[Entry, ...]:
        """``forward``, ``embed`` and ``classify``."""
        forward, embed = super().entries()
        taken, ones = embed.inputs, embed.defaults
        classify = Entry("classify", self.classify, taken, ("logits",), defaults=ones)
        return forward, embed, classify
