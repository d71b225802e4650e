"""The heads that tell classes of texts apart, or say how well two texts go together."""

from __future__ import annotations

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.encoder_config import EncoderConfig
from maxtool.dtype import DType
from maxtool.graph import Tensor
from maxtool.nn import LayerNorm, Linear, Module


class ClassifierHead(Module[[Tensor], Tensor]):
    """``out(norm(activation(dense(x))))`` of one vector for each text.

    BERT's has ``out`` alone, as its pooler stands before it; ModernBERT's has a norm.
    """

    def __init__(self, config: EncoderConfig, dtype: DType) -> None:
        hidden, biased = config.hidden_size, config.classifier_bias
        self.activation = config.classifier_act
        self.dense = (
            Linear(hidden, hidden, dtype, has_bias=biased) if self.activation is not None else None
        )
        self.norm = (
            LayerNorm(hidden, eps=config.norm_eps, use_bias=config.norm_bias)
            if config.classifier_norm
            else None
        )
        self.out = Linear(hidden, config.n_labels, dtype, has_bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, hidden]`` to logits ``[batch, n_labels]``."""
        if self.dense is not None and self.activation is not None:
            x = ACTIVATIONS[self.activation](self.dense(x))
        return self.out(x if self.norm is None else self.norm(x))
