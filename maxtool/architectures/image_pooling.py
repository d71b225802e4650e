"""One vector for an image, made of its tokens' vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.encoder_attention import EncoderAttention
from maxtool.architectures.mlp import PlainMLP
from maxtool.architectures.pre_norm_layer import LayerSizes
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.nn import LayerNorm, Linear, Module


def first(x: Tensor, before: int) -> Tensor:  # noqa: ARG001 - the signature of all three
    """The class token ``[batch, hidden]`` of tokens ``[batch, seq, hidden]``.

    ``before`` tokens stand before the patches.
    """
    return x[:, 0]


def mean(x: Tensor, before: int) -> Tensor:
    """The mean of the patches; shapes as :func:`first`."""
    return ops.mean(x[:, before:], axis=1).reshape([x.shape[0], x.shape[2]])


def first_and_mean(x: Tensor, before: int) -> Tensor:
    """The class token and the mean of the patches, ``[batch, 2 * hidden]``."""
    return ops.concat([first(x, before), mean(x, before)], axis=1)


POOLINGS: Mapping[str, Callable[[Tensor, int], Tensor]] = {"cls": first, "mean": mean}
CLASSIFIED = {**POOLINGS, "cls_and_mean": first_and_mean}


class DensePooler(Module[[Tensor], Tensor]):
    """A layer with an activation on the class token, as ViT has it."""

    def __init__(self, hidden: int, size: int, activation: str, dtype: DType) -> None:
        self.dense = Linear(hidden, size, dtype, has_bias=True)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, seq, hidden]`` to ``[batch, size]``."""
        return ACTIVATIONS[self.activation](self.dense(x[:, 0]))


class AttentionPooler(Module[[Tensor], Tensor]):
    """A learned query over all tokens, and an MLP on what it finds, as SigLIP has it.

    Zhai et al., "Sigmoid Loss for Language Image Pre-Training" (2023), after the multihead
    attention pooling of Zhai et al., "Scaling Vision Transformers" (2022).
    """

    def __init__(self, sizes: LayerSizes, dtype: DType) -> None:
        hidden, inner = sizes.hidden_size, sizes.intermediate_size
        self.probe = Weight("probe", DType.float32, (hidden,))
        self.attn = EncoderAttention(hidden, sizes.n_heads, sizes.head_dim, dtype)
        self.norm = LayerNorm(hidden, eps=sizes.norm_eps)
        self.mlp = PlainMLP(hidden, inner, sizes.hidden_act, dtype, has_bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, seq, hidden]`` to ``[batch, hidden]``."""
        batch, _, hidden = x.shape
        query = self.probe.reshape([1, 1, hidden]).broadcast_to([batch, 1, hidden])
        found = self.attn.across(query, x)
        return (found + self.mlp(self.norm(found))).reshape([batch, hidden])


class NormPooler(Module[[Tensor], Tensor]):
    """The norm of the class token alone, as CLIP has it."""

    def __init__(self, hidden: int, eps: float) -> None:
        self.norm = LayerNorm(hidden, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, seq, hidden]`` to ``[batch, hidden]``."""
        return self.norm(x[:, 0])


class ClassPooler(Module[[Tensor], Tensor]):
    """The class token, as DINOv2 has it."""

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, seq, hidden]`` to ``[batch, hidden]``."""
        return first(x, 1)
