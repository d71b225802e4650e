"""A mixture of experts: a router sends each token through a few of many gated MLPs."""

from __future__ import annotations

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight
from maxtool.nn import Linear, Module


class ExpertLinear(Module[[Tensor, Tensor], Tensor]):
    """A linear layer for each expert.

    Args:
        count: How many experts there are.
        in_dim: The width of the input.
        out_dim: The width of the output.
        dtype: The weight's element type.

    Attributes:
        weight: ``[count, out_dim, in_dim]``.
    """

    def __init__(self, count: int, in_dim: int, out_dim: int, dtype: DType) -> None:
        self.weight = Weight("weight", dtype, (count, out_dim, in_dim))


class Experts(Module[[Tensor], Tensor]):
    """The experts of one layer and their router."""

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        count, hidden = config.n_experts or 0, config.hidden_size
        inner = config.expert_size or config.intermediate_size
        self.router = Linear(hidden, count, dtype)
        self.gate = ExpertLinear(count, hidden, inner, dtype)
        self.up = ExpertLinear(count, hidden, inner, dtype)
        self.down = ExpertLinear(count, inner, hidden, dtype)
