"""A mixture of experts: a router sends each token through a few of many gated MLPs."""

from __future__ import annotations

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.mlp import ACTIVATIONS
from maxtool.dtype import DType
from maxtool.graph import ShardingStrategy, Tensor, Weight, ops
from maxtool.nn import Linear, Module, tensor_parallel
from maxtool.nn.placement import by_dimension, sharding_of
from maxtool.nn.tensor_parallel import Role, strategy_of


class ExpertLinear(Module[[Tensor, Tensor], Tensor]):
    """A linear layer for each expert.

    Sums that are to be added up over devices, where its ``role`` says so, are left to who calls it.
    """

    def __init__(self, count: int, in_dim: int, out_dim: int, dtype: DType, role: Role) -> None:
        self.weight = Weight("weight", dtype, (count, out_dim, in_dim))
        self.role = role

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        """``x [..., in]`` or ``[..., used, in]`` to ``[..., used, out]``, by the experts chosen."""
        return ops.expert_linear(x, tensor_parallel.part(self.weight), chosen)


@sharding_of.register
def _(
    layer: ExpertLinear,
    name: str,  # noqa: ARG001 - there is one weight
    weight: Weight,
    strategy: ShardingStrategy,
) -> ShardingStrategy:
    """The strategy as for any layer; where layers say how they are split, the one for its role."""
    if not strategy.is_tensor_parallel:
        return by_dimension(weight, strategy)
    return strategy_of(layer.role, weight, strategy.num_devices)


class MixtureOfExperts(Module[[Tensor], Tensor]):
    """The experts of one layer and their router.

    The router gives each expert a share of a token by a softmax; the token goes through those with
    the largest shares, and what they make of it is added up by share (Shazeer et al. 2017).
    """

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        count, hidden = config.n_experts or 0, config.hidden_size
        inner = config.expert_size or config.intermediate_size
        self.router = Linear(hidden, count, dtype)
        self.gate = ExpertLinear(count, hidden, inner, dtype, Role.OUTPUTS)
        self.up = ExpertLinear(count, hidden, inner, dtype, Role.OUTPUTS)
        self.down = ExpertLinear(count, inner, hidden, dtype, Role.INPUTS)
        self.used = config.n_experts_used or 0
        self.norm_topk = config.norm_topk
        self.activation = config.hidden_act

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., hidden]`` to the same shape."""
        shares, chosen = ops.top_k(ops.softmax(self.router(x)), self.used)
        if self.norm_topk:
            shares = shares / ops.sum(shares)
        inner = ACTIVATIONS[self.activation](self.gate(x, chosen)) * self.up(x, chosen)
        mixed = ops.weighted_sum(self.down(inner, chosen), shares)
        return tensor_parallel.summed(mixed, self.down.weight)
