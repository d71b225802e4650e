"""A convolution over the tokens of a text, beside an encoder's first layer (DeBERTa)."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.encoder_config import EncoderConfig
from maxtool.architectures.token_masks import factors
from maxtool.dtype import DType
from maxtool.graph import FoldedWeight, Tensor, Weight, ops
from maxtool.nn import LayerNorm, Module

Array: TypeAlias = np.ndarray[Any, Any]


class TokenConvolution(Module[[Tensor, Tensor, Tensor], Tensor]):
    """``norm(x + activation(conv(embedded)))`` of tokens that are not padding, in float32.

    Attributes:
        weight: ``[hidden, hidden / groups, taps]``, as PyTorch has it.
        filter: The same as kernels read it, with channels and features last.
        bias: ``[hidden]``.
    """

    def __init__(self, config: EncoderConfig) -> None:
        hidden, taps, self.groups = config.hidden_size, config.conv_taps or 1, config.conv_groups
        inner = hidden // self.groups
        self.weight = Weight("weight", DType.float32, (hidden, inner, taps))
        self.filter = FoldedWeight((taps, inner, hidden), (self.weight,), _features_last)
        self.bias = Weight("bias", DType.float32, (hidden,))
        self.norm = LayerNorm(hidden, eps=config.norm_eps)
        self.activation, self.reach = config.conv_act, taps // 2

    def forward(self, embedded: Tensor, x: Tensor, attention_mask: Tensor) -> Tensor:
        """Map ``x [batch, seq, hidden]`` to its shape; the mask is 1 for a token, 0 for padding.

        ``embedded`` is what went into the layer that ``x`` came out of, zeros for padding.
        """
        mixed = ops.conv1d(
            embedded, self.filter, padding=self.reach, groups=self.groups, bias=self.bias
        )
        return self.norm(x + ACTIVATIONS[self.activation](mixed)) * factors(attention_mask)


def _features_last(weight: Array) -> Array:
    return weight.transpose(2, 1, 0)
